"use strict";
// The charts, the table and the log of a report. All text of users reaches the page as text:
// by textContent, or through escaped() where plotly.js takes a subset of HTML.
(async () => {
  const $ = (id) => document.getElementById(id);
  const COLOURS = ["#2f7bd0", "#d9711c", "#2e9348", "#c63b3c", "#8a63b8", "#8f6254", "#d066b3",
    "#7d7d7d", "#a3a221", "#1fa7b8"];
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const BUTTONS = [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]];
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const colour = (run) => COLOURS[run % COLOURS.length];
  const dash = (run) => DASHES[Math.floor(run / COLOURS.length) % DASHES.length];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  async function unpacked(id) {
    const text = atob($(id).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // The state of the controls survives a reload of the page.
  const KEY = "jobrun-report:" + location.pathname;
  const kept = JSON.parse(sessionStorage.getItem(KEY) || "{}");
  const zooms = kept.zooms || {};
  const controls = () => document.querySelectorAll("input[id], select[id]");

  function keep() {
    const state = { zooms, scroll: scrollY, values: {}, open: {} };
    for (const c of controls()) state.values[c.id] = c.type === "checkbox" ? c.checked : c.value;
    for (const d of document.querySelectorAll("details[id]")) state.open[d.id] = d.open;
    sessionStorage.setItem(KEY, JSON.stringify(state));
  }

  function restore() {
    for (const c of controls()) {
      const value = kept.values && kept.values[c.id];
      if (typeof value === "boolean") c.checked = value;
      else if (value !== undefined && value !== "") c.value = value;
      if (c.tagName === "SELECT" && c.selectedIndex < 0) c.selectedIndex = 0;
    }
    for (const [id, open] of Object.entries(kept.open || {})) if ($(id)) $(id).open = open;
  }

  // Charts are drawn when they come into view.
  const charts = new Map();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "200px" });

  function chart(box, figure) {
    charts.set(box, { figure, drawn: false });
    box.addEventListener("keydown", (event) => steer(box, event));
    seen.observe(box);
  }

  function layout(more) {
    const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), automargin: true };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      font: { color: css("--text"), size: 12 }, margin: { l: 50, r: 12, t: 10, b: 40 },
      hovermode: "closest", dragmode: "zoom", ...more,
      xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
      hoverlabel: { namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--link") },
    };
  }

  function draw(box) {
    const entry = charts.get(box);
    const { data, layout: more } = entry.figure();
    const look = layout(more);
    for (const [name, range] of Object.entries(zooms[box.id] || {})) look[name].range = range;
    Plotly.react(box, data, look, { responsive: true, displaylogo: false, modeBarButtons: BUTTONS });
    if (!entry.drawn) box.on("plotly_relayout", () => remember(box));
    entry.drawn = true;
  }

  function remember(box) {
    zooms[box.id] = {};
    for (const name of ["xaxis", "yaxis"]) {
      const axis = box.layout[name];
      if (axis.autorange === false || (axis.range && !axis.autorange)) {
        zooms[box.id][name] = axis.range.slice();
      }
    }
  }

  function redraw(boxes = [...charts.keys()], forget = false) {
    for (const box of boxes) {
      if (forget) delete zooms[box.id];
      if (charts.get(box).drawn) draw(box);
    }
  }

  function steer(box, event) {
    const axis = box._fullLayout && box._fullLayout.xaxis;
    if (!axis || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "0") {
      Plotly.relayout(box, { "xaxis.autorange": true, "yaxis.autorange": true });
      event.preventDefault();
      return;
    }
    const [low, high] = axis.range.map((value) => axis.r2l(value));
    const width = high - low;
    const moves = { "+": [0.2, -0.2], "=": [0.2, -0.2], "-": [-0.33, 0.33],
      ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const range = [low + move[0] * width, high + move[1] * width];
    Plotly.relayout(box, { "xaxis.range": range.map((value) => axis.l2r(value)) });
  }

  // Metrics.
  const isShown = (run) => $("run-shown-" + run).checked;

  function smoothed(values, weight) {
    let sum = 0, mass = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      mass = weight * mass + (1 - weight);
      return sum / mass;
    });
  }

  function curve(metric) {
    const weight = Number($("smoothing").value), over = $("over").value;
    const traces = [];
    data.runs.forEach((run, number) => {
      const values = run.metrics[metric];
      if (!values || !isShown(number)) return;
      const line = { color: colour(number), dash: dash(number), width: 1.6 };
      const mode = values.length < 40 ? "lines+markers" : "lines";
      const trace = { x: run[over], y: values, mode, line, marker: { size: 5 }, name: escaped(run.name),
        hovertemplate: "%{x}: %{y}<extra>%{fullData.name}</extra>", type: "scatter" };
      if (weight > 0) {
        traces.push({ ...trace, opacity: 0.25, hoverinfo: "skip", hovertemplate: undefined });
        trace.y = smoothed(values, weight);
      }
      traces.push(trace);
    });
    return { data: traces, layout: { hoverdistance: -1,  // the nearest point, however far
      xaxis: { title: { text: over === "epoch" ? "epoch" : "seconds" } },
      yaxis: { type: $("log-scale").checked ? "log" : "linear" } } };
  }

  function drawCurves() {
    const metrics = new Set(data.runs.flatMap((run) => Object.keys(run.metrics)));
    data.runs.forEach((run, number) => {
      const box = element("input", { type: "checkbox", id: "run-shown-" + number });
      box.checked = true;
      const swatch = element("span", { class: "swatch" });
      swatch.style.borderColor = colour(number);
      swatch.style.borderTopStyle = dash(number) === "solid" ? "solid" : "dashed";
      $("shown-runs").append(element("label", {}, box, swatch, run.name));
    });
    if (data.runs.length === 1) $("shown-runs").hidden = true;
    if (!metrics.size) $("curves").append("No metric has a value.");
    [...metrics].forEach((metric, number) => {
      const box = element("div", { class: "chart", id: "curve-" + number, tabindex: "0",
        role: "img", "aria-label": "Curve of " + metric });
      $("curves").append(element("div", {}, element("h3", {}, metric), box));
      chart(box, () => curve(metric));
    });
    const boxes = () => [...charts.keys()].filter((box) => box.id.startsWith("curve-"));
    $("smoothing").addEventListener("input", () => {
      $("smoothed").value = $("smoothing").value;
      redraw(boxes());
    });
    for (const id of ["log-scale", "over"]) {
      $(id).addEventListener("change", () => redraw(boxes(), true));
    }
    $("shown-runs").addEventListener("change", () => redraw());
    for (const [id, shown] of [["show-all", true], ["show-none", false]]) {
      $(id).addEventListener("click", () => {
        for (const box of $("shown-runs").querySelectorAll("input")) box.checked = shown;
        redraw();
      });
    }
  }

  // The table of runs.
  let sorted = { column: -1, up: true };

  function compared(a, b) {
    if (a.value !== undefined && b.value !== undefined) return a.value - b.value;
    if (a.value !== undefined || b.value !== undefined) return a.value !== undefined ? -1 : 1;
    return a.text.localeCompare(b.text, "en", { numeric: true });
  }

  function bestOf(column) {
    const way = data.table.columns[column].direction;
    const values = data.table.rows.map((row) => row[column].value).filter((v) => v !== undefined);
    return way && values.length > 1 ? Math[way](...values) : undefined;
  }

  function fillTable() {
    const body = $("runs-table").tBodies[0];
    const rows = [...data.table.rows];
    const { column, up } = sorted;
    if (column >= 0) rows.sort((a, b) => compared(a[column], b[column]) * (up ? 1 : -1));
    const best = data.table.columns.map((_, number) => bestOf(number));
    body.replaceChildren(...rows.map((row) => element("tr", {}, ...row.map((cell, number) => {
      const classes = [cell.value !== undefined ? "number" : "",
        cell.value !== undefined && cell.value === best[number] ? "best" : ""];
      return element("td", { class: classes.join(" ").trim() }, cell.text);
    }))));
    const heads = $("runs-table").tHead.rows[0].cells;
    [...heads].forEach((head, number) => head.setAttribute("aria-sort",
      number !== column ? "none" : up ? "ascending" : "descending"));
  }

  function drawTable() {
    data.table.columns.forEach((column, number) => {
      const button = element("button", { type: "button" }, column.name);
      button.addEventListener("click", () => {
        sorted = { column: number, up: sorted.column === number ? !sorted.up : true };
        fillTable();
      });
      $("runs-table").tHead.rows[0].append(element("th", { scope: "col" }, button));
    });
    fillTable();
    for (const id of ["scatter-x", "scatter-y", "colour-by"]) {
      data.table.columns.forEach((column, number) => {
        if (column.name !== "run") $(id).append(element("option", { value: number }, column.name));
      });
    }
    const of = (kind) => data.table.columns.findIndex((column) => column.kind === kind);
    const metric = of("metric") < 0 ? data.table.columns.length - 1 : of("metric");
    $("scatter-x").value = of("var") < 0 ? data.table.columns.length - 2 : of("var");
    $("scatter-y").value = $("colour-by").value = metric;
    $("scatter-x").addEventListener("change", () => redraw([$("scatter")], true));
    $("scatter-y").addEventListener("change", () => redraw([$("scatter")], true));
    $("colour-by").addEventListener("change", () => redraw([$("parallel")]));
    chart($("parallel"), parallel);
    chart($("scatter"), scatter);
  }

  // The place of a value on its axis, from 0 to 1; texts stand in their order.
  function scale(column) {
    const cells = data.table.rows.map((row) => row[column]);
    const numbers = cells.map((cell) => cell.value).filter((value) => value !== undefined);
    if (numbers.length && cells.every((c) => c.value !== undefined || c.text === "-")) {
      const low = Math.min(...numbers), high = Math.max(...numbers);
      const at = (cell) => cell.value === undefined ? null
        : high > low ? (cell.value - low) / (high - low) : 0.5;
      const short = (value) => String(Number(value.toPrecision(4)));
      return { at, low: short(low), high: short(high) };
    }
    const texts = [...new Set(cells.map((cell) => cell.text))].sort();
    const at = (cell) => texts.length > 1 ? texts.indexOf(cell.text) / (texts.length - 1) : 0.5;
    return { at, low: texts[0] || "", high: texts[texts.length - 1] || "" };
  }

  const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

  function parallel() {
    const columns = data.table.columns.map((_, n) => n)
      .filter((n) => ["var", "metric"].includes(data.table.columns[n].kind));
    const scales = columns.map(scale);
    const tint = scale(Number($("colour-by").value));
    const traces = data.table.rows.map((row, number) => {
      const share = tint.at(row[Number($("colour-by").value)]);
      const mix = share === null ? "#888888" : `hsl(${Math.round(215 - 195 * share)}, 75%, 50%)`;
      return { x: columns.map((_, place) => place), y: columns.map((n, i) => scales[i].at(row[n])),
        mode: "lines+markers", type: "scatter", line: { color: mix, width: 2 },
        visible: isShown(number), name: escaped(row[0].text), hoverinfo: "text",
        text: columns.map((n) =>
          escaped(`${row[0].text}: ${data.table.columns[n].name} ${row[n].text}`)) };
    });
    const label = (place, y, anchor, text) => ({ x: place, y, yanchor: anchor, showarrow: false,
      text: escaped(cut(text, 16)), font: { size: 11, color: css("--soft") } });
    return { data: traces, layout: {
      margin: { l: 40, r: 40, t: 24, b: 60 },
      annotations: scales.flatMap((s, place) =>
        [label(place, -0.03, "top", s.low), label(place, 1.03, "bottom", s.high)]),
      xaxis: { tickvals: columns.map((_, place) => place), zeroline: false,
        ticktext: columns.map((n) => escaped(cut(data.table.columns[n].name, 18))) },
      yaxis: { visible: false, range: [-0.16, 1.16] } } };
  }

  function scatter() {
    const [x, y] = ["scatter-x", "scatter-y"].map((id) => Number($(id).value));
    const value = (cell) => cell.value !== undefined ? cell.value : escaped(cell.text);
    const name = (n) => data.table.columns[n].name;
    const rows = data.table.rows.filter((_, number) => isShown(number));
    const marks = data.table.rows.map((_, number) => colour(number))
      .filter((_, number) => isShown(number));
    return { data: [{ type: "scatter", mode: "markers", marker: { size: 10, color: marks },
      x: rows.map((row) => value(row[x])), y: rows.map((row) => value(row[y])), hoverinfo: "text",
      text: rows.map((row) => escaped(
        `${row[0].text}: ${name(x)} ${row[x].text}, ${name(y)} ${row[y].text}`)) }],
      layout: { xaxis: { title: { text: escaped(name(x)) } },
        yaxis: { title: { text: escaped(name(y)) } } } };
  }

  // The timeline of one run.
  function clock(attempts) {
    if (!$("no-pauses").checked) return (time) => time * 1000;
    const first = [];
    let done = 0;
    for (const [start, end] of attempts) {
      first.push([start, done]);
      done += end - start;
    }
    return (time) => {
      let found = first[0] || [time, 0];
      for (const pair of first) if (pair[0] <= time + 0.002) found = pair;
      return found[1] + time - found[0];
    };
  }

  function timeline() {
    const run = data.runs[Number($("timeline-run").value)], line = run.timeline;
    const at = clock(line.attempts), dates = !$("no-pauses").checked;
    const names = Object.keys(line.bars);
    const unit = dates ? 1000 : 1;
    const traces = names.map((name, number) => ({ type: "bar", orientation: "h", width: 0.7,
      y: line.bars[name].map(() => number), base: line.bars[name].map((bar) => at(bar[0])),
      x: line.bars[name].map((bar) => bar[1] * unit), marker: { color: colour(number),
        line: { width: name === "attempts" ? 1.5 : 0, color: css("--page") } }, hoverinfo: "text",
      textposition: "none",
      text: line.bars[name].map((bar) => escaped(`${bar[2]}: ${Number(bar[1].toPrecision(3))} s`)) }));
    traces.push({ type: "scatter", mode: "markers", hoverinfo: "text",
      y: line.marks.map((mark) => Math.max(0, names.indexOf(mark[0]))),
      x: line.marks.map((mark) => at(mark[1])), text: line.marks.map((mark) => escaped(mark[2])),
      marker: { symbol: "x", size: 12, color: css("--bad") } });
    $("timeline-note").textContent = (line.left
      ? `Of each line the longest bars are shown; ${line.left} are left out. ` : "")
      + (line.marks.length ? "A cross: killed or crashed, or a save that failed." : "");
    $("timeline-chart").classList.toggle("tall", names.length > 8);
    return { data: traces, layout: { barmode: "overlay", margin: { l: 120, r: 12, t: 10, b: 40 },
      xaxis: dates ? { type: "date" } : { title: { text: "seconds of the run" } },
      yaxis: { autorange: "reversed", tickvals: names.map((_, number) => number), fixedrange: true,
        zeroline: false, ticktext: names.map((name) => escaped(cut(name, 24))) } } };
  }

  // The log of one run.
  function showLog() {
    const number = Number($("log-run").value), wanted = $("log-filter").value.toLowerCase();
    const lines = data.runs[number].log;
    const found = wanted ? lines.filter((line) => line.toLowerCase().includes(wanted)) : lines;
    $("log-lines").textContent = found.join("\n");
    $("log-count").value = `${found.length} of ${lines.length} lines`;
    document.querySelectorAll(".log-note").forEach((note, n) => { note.hidden = n !== number; });
  }

  let data;
  try {
    data = JSON.parse(await unpacked("packed-data"));
    const library = element("script");
    library.textContent = await unpacked("packed-plotly");
    document.head.append(library);
  } catch (error) {
    $("failed").textContent = "The charts cannot be shown by this browser: " + error.message;
    $("failed").hidden = false;
    return;
  }
  drawCurves();
  if ($("runs-table")) drawTable();
  restore();
  $("smoothed").value = $("smoothing").value;
  chart($("timeline-chart"), timeline);
  for (const id of ["timeline-run", "no-pauses"]) {
    $(id).addEventListener("change", () => redraw([$("timeline-chart")], true));
  }
  showLog();
  $("log-run").addEventListener("change", showLog);
  $("log-filter").addEventListener("input", showLog);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
  if (kept.scroll) scrollTo(0, kept.scroll);
  const seconds = Number(document.body.dataset.refresh);
  if (seconds > 0) {
    setInterval(() => { if ($("refresh").checked) { keep(); location.reload(); } }, seconds * 1000);
  }
  document.body.dataset.ready = "yes";
})();
