"""How the HTML report looks: on a light or a dark screen, on a narrow one, and on paper."""

from __future__ import annotations

STYLE = """\
:root {
  color-scheme: light dark;
  --ink: #1f2328; --dim: #59636e; --paper: #ffffff; --line: #d1d9e0; --track: #eef1f4;
  --grey: #8c959f; --blue: #4a7fc1; --amber: #c98a1b; --pale: #e3c283; --green: #2f8f4e;
  --red: #c4302b; --red-wash: #fdf1f0; --amber-wash: #fdf6e7; --green-wash: #eef8f1; --grey-wash: #f6f8fa;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e9ed; --dim: #9aa4af; --paper: #14181d; --line: #343b43; --track: #232a31;
    --grey: #7a848f; --blue: #6a9fe0; --amber: #e0a53c; --pale: #8f713a; --green: #4fb873;
    --red: #ff7b72; --red-wash: #2d1a1b; --amber-wash: #2b2416; --green-wash: #16281d; --grey-wash: #1c2229;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.25rem 2.5rem; }
main + main { border-top: 2px solid var(--line); }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; }
h1 { overflow-wrap: anywhere; }
h1.failed, h1.bad { color: var(--red); } h1.ready, h1.good { color: var(--green); }
h1.unfinished, h1.open { color: var(--amber); }
h2 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
h2.conflicts { color: var(--red); }
h3 { font-size: 1rem; margin: 0 0 .25rem; }
p { margin: .3rem 0; }
.key { font-size: 1.1rem; font-weight: 600; }
.verdict { padding: .45rem .75rem; border-left: 4px solid; font-weight: 600; border-radius: 0 4px 4px 0; }
.verdict.error, .finding.error { border-color: var(--red); background: var(--red-wash); }
.verdict.warning, .finding.warning { border-color: var(--amber); background: var(--amber-wash); }
.verdict.note, .finding.note { border-color: var(--grey); background: var(--grey-wash); }
.verdict.well { border-color: var(--green); background: var(--green-wash); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 1rem 0; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
dd.alarm { color: var(--red); }
.where, .remark, .legend, .unknown, th { color: var(--dim); font-weight: 400; font-size: .88rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .22rem .9rem .22rem 0; white-space: nowrap; vertical-align: middle; }
th { border-bottom: 1px solid var(--line); }
tbody tr + tr td { border-top: 1px solid var(--track); }
.r { text-align: right; }
.fall .unknown { font-weight: 400 !important; color: var(--dim) !important; }
.fall tr:not(.beside) + tr.beside td { border-top: 1px solid var(--line); }
.fall .beside .symbol { font-weight: 400; }
table.fall { width: 100%; }
.fall .bar { width: 40%; min-width: 9rem; }
.fall .symbol { font-weight: 600; }
.fall .part td { color: var(--dim); font-size: .92rem; }
.fall .part .symbol { padding-left: 1rem; font-weight: 400; }
.fall .total td, .fall .budget td, .fall .pool td { font-weight: 600; }
.fall td.where { font-weight: 400; }
.fall .pool td:not(.where) { color: var(--green); }
main.wide { max-width: 72rem; }
table.words { width: 100%; font-size: .93rem; }
.words td:not(.r):not(.symbol) { white-space: normal; }
.words td.symbol { font-weight: 600; }
.words div.remark { white-space: normal; max-width: 16rem; }
.flag { white-space: nowrap; }
.words .bar { width: 22%; min-width: 7rem; }
.words .track { height: .5rem; }
.track + .track { margin-top: 2px; }
.track { position: relative; height: .85rem; background: var(--track); border-radius: 2px; overflow: hidden; }
.track i { position: absolute; top: 0; bottom: 0; min-width: 2px; background: var(--mark); }
.track i.open { opacity: .4; }
.total { --mark: var(--grey); } .unused { --mark: var(--grey); } .budget { --mark: var(--blue); }
.taken { --mark: var(--amber); } .part { --mark: var(--pale); } .pool { --mark: var(--green); }
.finding { border-left: 4px solid; padding: .55rem .85rem; margin: .6rem 0; border-radius: 0 4px 4px 0; }
.finding b { text-transform: uppercase; font-size: .72rem; letter-spacing: .05em; margin-right: .35rem; }
.finding.error b { color: var(--red); } .finding.warning b { color: var(--amber); } .finding.note b { color: var(--dim); }
.cost { font-weight: 600; }
ul { margin: .3rem 0; padding-left: 1.25rem; }
li { overflow-wrap: anywhere; margin: .15rem 0; }
code { font: .88em ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 40rem) {
  main { padding: 1rem .75rem 2rem; }
  table { font-size: .85rem; }
  th, td { padding-right: .6rem; }
  table:not(.fall) td, .fall td:nth-child(2) { white-space: normal; }
  .words td.remark, .words th.remark { display: none; }
}
@media print {
  :root {
    color-scheme: light;
    --ink: #000000; --dim: #444444; --paper: #ffffff; --line: #bbbbbb; --track: #f0f0f0;
    --grey: #8c959f; --blue: #4a7fc1; --amber: #c98a1b; --pale: #e3c283; --green: #2f8f4e;
    --red: #a02020; --red-wash: #ffffff; --amber-wash: #ffffff; --green-wash: #ffffff; --grey-wash: #ffffff;
  }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { font-size: 10.5pt; }
  main { padding: 0; max-width: none; }
  main + main { border: 0; }
  .scroll { overflow: visible; }
  th, td { white-space: normal; overflow-wrap: break-word; padding-right: .6rem; }
  td.r, .symbol { white-space: nowrap; }
  table.words { font-size: 8.5pt; }
  .words div.remark { font-size: 8pt; max-width: 11rem; }
  .words .bar { min-width: 5rem; }
  .fall .bar { width: 30%; min-width: 6rem; }
  tr, .finding, dl, li { break-inside: avoid; }
  h1, h2, h3 { break-after: avoid; }
  main + main { break-before: page; }
}
"""
