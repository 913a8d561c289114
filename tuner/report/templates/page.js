// Asks every few seconds whether the page says something else by now, and draws its figures.
const part = document.getElementById('live');
let tag = part.dataset.tag;
const drawn = new Map();

async function draw() {
  for (const place of part.querySelectorAll('[data-figure]')) {
    const from = place.dataset.figure;
    const known = drawn.get(from);
    if (known && known !== place) { place.replaceWith(known); continue; }
    if (known || !window.Plotly) continue;
    drawn.set(from, place);
    const answer = await fetch(from);
    if (!answer.ok) { place.textContent = await answer.text(); continue; }
    const { data, layout } = await answer.json();
    layout.font = { ...layout.font, color: getComputedStyle(document.body).color };
    layout.autosize = true;
    if (place.clientWidth < 500) fit(data, layout);
    window.Plotly.newPlot(place, data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  }
}

// A narrow screen: smaller letters, the legend below, labels that end where the axis does.
function fit(data, layout) {
  const entries = data.filter(each => each.name && each.showlegend !== false).length;
  layout.margin = { ...layout.margin, l: 52, r: 10 };
  layout.font.size = 11;
  layout.height = 340 + 20 * entries;
  layout.legend = { ...layout.legend, font: { size: 11 }, y: -60 / 260 };
  for (const note of layout.annotations || []) {
    note.font = { ...note.font, size: 10 };
    if (note.showarrow && note.text) Object.assign(note, { ax: layout.xaxis.range[1], xanchor: 'right' });
    if (note.xref === 'x domain') Object.assign(note, { x: 0, xanchor: 'left' });
  }
}

async function look() {
  if (document.hidden) return;
  try {
    const answer = await fetch(part.dataset.from, { headers: { 'If-None-Match': tag } });
    if (answer.status === 200) {
      tag = answer.headers.get('ETag');
      part.innerHTML = await answer.text();
      draw();
    }
    document.body.classList.toggle('away', answer.status >= 400);
  } catch { document.body.classList.add('away'); }
}

draw();
const again = () => setTimeout(() => look().then(again), part.querySelector('#reading') ? 700 : 4000);
again();
document.addEventListener('visibilitychange', look);
