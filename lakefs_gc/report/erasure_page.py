"""The report of ``prove-erased`` as one HTML page, without scripts and without anything from the network."""

from __future__ import annotations

from jinja2 import Environment

from lakefs_gc.engine.explain.erasure import ErasureProof
from lakefs_gc.engine.explain.words import day

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Erasure of {{ proof.paths|length }} paths in {{ proof.repository }}: {{ proof.verdict }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1b1b }
table { border-collapse: collapse; width: 100% }
td, th { border-top: 1px solid #ccc; padding: .4rem .6rem; text-align: left; vertical-align: top }
td { overflow-wrap: anywhere } td[class] { white-space: nowrap }
.erased { color: #14612b } .remains { color: #a01313 } .unknown { color: #8a5a00 }
small { color: #555 }
</style>
</head>
<body>
<h1>Erasure: <span class="{{ proof.verdict }}">{{ proof.verdict }}</span></h1>
<table>
<tr><th>Repository</th><td>{{ proof.repository }} <small>{{ proof.namespace }}, {{ proof.server }}</small></td></tr>
<tr><th>Paths</th><td>{% for path in proof.paths %}{{ path }}<br>{% endfor %}</td></tr>
<tr><th>Made</th><td>{{ day(proof.made_at) }} by {{ proof.made_by }}</td></tr>
<tr><th>Digest of the JSON report</th><td>{{ proof.digest }}</td></tr>
</table>
<h2>{{ proof.objects|length }} objects</h2>
<table>
<tr><th>Path and address</th><th>Result</th><th>Evidence</th></tr>
{% for object in proof.objects -%}
<tr>
<td>{{ object.explanation.asked }}<br><small>{{ object.explanation.address }}</small></td>
<td class="{{ object.verdict }}">{{ object.verdict }}</td>
<td>{% for line in object.remains + object.deleted_by %}{{ line }}<br>{% endfor %}
{% for path in object.explanation.paths %}<small>{{ path.path }}: commits: {{ path.commits }}{% if path.first %},
{{ path.first.id[:12] }} of {{ day(path.first.created_at) }} to
{{ path.last.id[:12] }} of {{ day(path.last.created_at) }}{% endif %}</small><br>{% endfor %}</td>
</tr>
{% endfor -%}
</table>
{% for title, lines in sections if lines -%}
<h2>{{ title }}</h2>
<ul>{% for line in lines %}<li>{{ line }}</li>{% endfor %}</ul>
{% endfor -%}
</body>
</html>
"""


def erasure_page(proof: ErasureProof) -> str:
    """Return the report as HTML. Every text from the store and the user is escaped."""
    sections = (
        ("Could not be looked at", proof.not_looked_at),
        ("Looked at", proof.looked_at),
        ("Stated by the user", proof.stated),
        ("What this report does not cover", proof.limits),
    )
    page = Environment(autoescape=True, trim_blocks=True).from_string(_PAGE)
    return page.render(proof=proof, sections=sections, day=day)
