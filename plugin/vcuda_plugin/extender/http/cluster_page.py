"""The cluster page as HTML: what waits and why, quotas, and nodes with their GPUs and shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from vcuda_oci.model.sizes import gib

from ...web.page_frame import COLOURS, Frame, escape, page

REFRESH_SECONDS = 10
_Entry = Mapping[str, Any]


def render(view: _Entry) -> bytes:
    """A complete page. view: as `cluster_view.view` makes it."""
    content = _waiting(view) + _quotas(view) + "".join(map(_node, view["nodes"]))
    if not view["nodes"]:
        where = f"of namespace {view['namespace']} " if view["namespace"] else ""
        content += f'<p class="soft">No node with shares {escape(where)}to show.</p>'
    if view["next"]:
        query = {"namespace": view["namespace"], "after": view["next"]}
        more = urlencode({key: value for key, value in query.items() if value})
        content += f'<p><a href="?{escape(more)}">More nodes</a></p>'
    return page(_frame(view["namespace"]), _summary(view), content)


def refusal(text: str, namespace: str) -> bytes:
    """A page that says why nothing is shown, with the form to choose a namespace."""
    body = f'<section class="card"><h2>Not shown</h2><p>{escape(text)}</p></section>'
    return page(_frame(namespace), "", body)


def _frame(namespace: str) -> Frame:
    """The form has no address: it asks for the page's own, wherever a proxy serves it."""
    form = (
        '<form class="filter" role="search"><label>Namespace <input name="namespace" '
        f'value="{escape(namespace)}" size="24" maxlength="63" autocomplete="off" '
        'spellcheck="false"></label> <button>Show</button>'
        '<span class="soft"> empty: all of them</span></form>'
    )
    place = f"in namespace {namespace}" if namespace else "in the cluster"
    return Frame("vcuda: GPUs of the cluster", place, above=form, refresh_seconds=REFRESH_SECONDS)


def _summary(view: _Entry) -> str:
    gpus = [gpu for node in view["nodes"] for gpu in node["gpus"]]
    shares = sum(len(gpu["shares"]) for gpu in gpus)
    counts = ((len(view["nodes"]), "node"), (len(gpus), "GPU"), (shares, "share"))
    parts = [f"{number} {what}{'' if number == 1 else 's'}" for number, what in counts]
    waits = view["waiting_count"]
    text = ", ".join((*parts, f"{waits} {'pod waits' if waits == 1 else 'pods wait'}"))
    return text + (", of the nodes listed here" if view["next"] else "")


def _table(caption: str, heads: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    """kind: a class for the widths of its columns."""
    titles = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<table class="{kind}"><caption class="hidden">{escape(caption)}</caption>'
        f"<thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _waiting(view: _Entry) -> str:
    shown, count = view["waiting"], view["waiting_count"]
    body = f'<p class="bad">{escape(view["trouble"])}</p>' if view["trouble"] else ""
    if not shown:
        body += '<p class="soft">No pod waits for a GPU.</p>'
    else:
        rows = [
            f'<tr><td class="name">{escape(pod["namespace"])}/{escape(pod["pod"])}'
            f"{_claim(pod)}</td>"
            f"<td>{escape(pod['asked'] or '-')}</td>"
            f'<td><span class="of">{_since(pod["since"])}</span></td>'
            f'<td class="notes">{_why(pod)}</td></tr>'
            for pod in shown
        ]
        body += _table(
            "Pods that wait for a GPU", ("Pod", "Asks for", "Since", "Why"), rows, "waits"
        )
    if count > len(shown):
        body += f'<p class="soft">{count - len(shown)} more, of lower priority, wait.</p>'
    return f'<section class="card"><h2>What waits</h2>{body}</section>'


def _claim(entry: _Entry) -> str:
    return f' <span class="soft">claim {escape(entry["claim"])}</span>' if entry["claim"] else ""


def _since(created: str) -> str:
    """The date and the time of 2026-11-26T09:14:03Z, where a line may end between them."""
    day, _, clock = created.partition("T")
    return f"{escape(day)} {escape(clock[:5])} UTC" if clock else escape(created or "-")


def _why(pod: _Entry) -> str:
    if pod["invalid"]:
        return f'<span class="bad">{escape(pod["invalid"])}</span>'
    notes = [escape(pod["note"])] if pod["note"] else []
    if pod["fits"]:
        what = "1 node has" if pod["fits"] == 1 else f"{pod['fits']} nodes have"
        found = f"{what} room: something else holds it, see kubectl describe pod"
        return "<br>".join([found, *notes])
    if not pod["of"]:
        return "no node has a GPU"
    if not pod["judged"]:
        return "not looked for: too many pods wait; choose a namespace"
    reasons = "<br>".join([*map(_reason, pod["why"]), *notes])
    if pod["judged"] < pod["of"]:
        reasons += f"<br>{pod['judged']} of {pod['of']} nodes were looked at"
    return reasons


def _reason(group: _Entry) -> str:
    names = ", ".join(group["names"])
    more = group["nodes"] - len(group["names"])
    if not names:
        names = f"{group['nodes']} node{'' if group['nodes'] == 1 else 's'}"
    elif more:
        names += f" and {more} more"
    never = '<span class="bad">never</span>: ' if group["never"] else ""
    return f"{escape(names)}: {never}{escape(group['reason'])}"


def _quotas(view: _Entry) -> str:
    if not view["quota"] and not view["quota_trouble"]:
        return ""
    body = ""
    if view["quota_trouble"]:
        body += f'<p class="bad">{escape(view["quota_trouble"])}</p>'
    rows = []
    for row in view["quota"]:
        limit = "no limit" if row["limit"] is None else f"of {row['limit']:g}"
        rows.append(
            f'<tr><td class="name">{escape(row["namespace"])}</td>'
            f"<td>{escape(row['model'] or 'model unknown')}</td>"
            f"<td>{row['used']:g} in use</td><td>{limit}</td></tr>"
        )
    if rows:
        heads = ("Namespace", "Model", "Cards", "Quota")
        body += _table("Use and quota in cards", heads, rows)
    return f'<section class="card"><h2>Quotas</h2>{body}</section>'


def _node(node: _Entry) -> str:
    bad = f'<span class="state bad">{escape(node["why"])}</span>' if node["why"] else ""
    gpus = "".join(map(_gpu, node["gpus"]))
    return f'<section class="card"><h2>{escape(node["name"])}{bad}</h2>{gpus}</section>'


def _gpu(gpu: _Entry) -> str:
    bad = ""
    if gpu["unusable"]:
        bad = f'<span class="state bad">no new pods: {escape(gpu["unusable"])}</span>'
    head = (
        f"<h3>GPU {gpu['index']} · {escape(gpu['model'])} "
        f'<span class="soft">{escape(gpu["uuid"])}</span>{bad}</h3>'
    )
    bars = ""
    if "others" in gpu:
        core, memory = gpu["core_free"], gpu["memory_free_bytes"]
        there = gpu["memory_bytes"]
        bars = _bar(gpu, "Compute", "core_percent", 100, f"{max(0, core)} % free")
        bars += _bar(
            gpu, "Memory", "memory_bytes", there, f"{gib(max(0, memory))} free of {gib(there)}"
        )
    rows = [_share(*pair) for pair in enumerate(gpu["shares"])]
    others = gpu.get("others", {})
    if any(others.values()):
        rows.append(
            '<tr><td class="name">others</td>'
            f"<td>{others['core_percent']} %</td><td>{gib(others['memory_bytes'])}</td>"
            '<td class="notes"></td></tr>'
        )
    if not rows:
        return head + bars
    caption = f"Shares of GPU {gpu['index']}"
    return head + bars + _table(caption, ("Pod", "Compute", "Memory", ""), rows)


def _share(number: int, share: _Entry) -> str:
    return (
        f'<tr><td class="name"><i class="c{number % COLOURS}"></i>{escape(share["namespace"])}/'
        f"{escape(share['pod'])}{_claim(share)}</td><td>{share['core_percent']} %</td>"
        f"<td>{gib(share['memory_bytes'])}</td>"
        f'<td class="notes">{"is being bound" if share["being_bound"] else ""}</td></tr>'
    )


def _bar(gpu: _Entry, title: str, key: str, there: int, says: str) -> str:
    """A bar of the shares beside each other, those of other namespaces last."""
    parts = [(f"c{n % COLOURS}", share[key]) for n, share in enumerate(gpu["shares"])]
    parts.append(("others", gpu["others"][key]))
    scale = max(there, sum(size for _, size in parts), 1)
    rects, x = "", 0.0
    for colour, size in parts:
        width = 100 * size / scale
        rects += f'<rect class="{colour}" x="{x:.2f}%" width="{width:.2f}%" height="26"/>'
        x += width
    return (
        f'<div class="whole"><span>{title}</span><svg class="bar" role="img" '
        f'aria-label="{title}: {escape(says)}">{rects}</svg>'
        f'<span class="says">{escape(says)}</span></div>'
    )
