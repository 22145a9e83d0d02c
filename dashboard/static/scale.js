// Colours: prices from cheap to dear, and series that are told apart.

// The scale goes from blue over sand to red, in steps that differ in lightness too.
const stops = [[43, 108, 158], [111, 160, 190], [226, 190, 96], [222, 132, 55], [186, 51, 44]];

// priceScale gives a colour for a price. Prices that are nearly alike look alike: the scale spans
// a factor of two at least.
export function priceScale(prices) {
  const some = prices.filter((p) => p > 0);
  const low = some.length ? Math.min(...some) : 1;
  const high = Math.max(some.length ? Math.max(...some) : 1, 2 * low);
  const at = (p) => Math.min(1, Math.max(0, Math.log(p / low) / Math.log(high / low)));
  return { low, high, color: (p) => (p > 0 ? between(at(p)) : "var(--idle)"), stops: [0, 0.25, 0.5, 0.75, 1].map(between) };
}

function between(x) {
  const at = x * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  const c = stops[i].map((v, k) => Math.round(v + (at - i) * (stops[i + 1][k] - v)));
  return `rgb(${c.join(",")})`;
}

// Okabe and Ito's colours, which colour-blind people tell apart.
const series = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#7a5195"];
export const seriesColor = (i) => (i < 0 ? "var(--idle)" : series[i % series.length]);
