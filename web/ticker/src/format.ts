/** Formats numbers and times for the page. */

const priceFormat = new Intl.NumberFormat("en", {
  minimumFractionDigits: 2,
  maximumFractionDigits: 2,
});
const countFormat = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const price = (value: number): string => priceFormat.format(value);
export const count = (value: number): string => countFormat.format(value);

/** A change with its sign; the true minus sign is as wide as the plus. */
export function percent(value: number): string {
  const rounded = Math.abs(value).toFixed(2);
  if (rounded === "0.00") return "0.00 %";
  return `${value < 0 ? "\u2212" : "+"}${rounded} %`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${count(value)} B`;
  return `${(value / 1000).toFixed(1)} kB`;
}

export function milliseconds(value: number): string {
  if (value < 10) return `${value.toFixed(1)} ms`;
  return value < 1000 ? `${count(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

export const seconds = (valueMs: number): string => `${(valueMs / 1000).toFixed(1)} s`;

export const plural = (n: number, one: string, many: string): string =>
  `${count(n)} ${n === 1 ? one : many}`;

/** A prefix of a client's id, long enough to distinguish it. */
export const shortId = (client: string): string => client.slice(0, 8);

export function clock(date: Date): string {
  return date.toLocaleTimeString("en-GB", { hour12: false });
}
