/** Numbers as people read them. */

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(value: number): string {
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value.toFixed(0) : digits(value)} ${UNITS[unit]}`;
}

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** A rate per second. */
export function rate(value: number): string {
  return value >= 100 ? count(value) : digits(value);
}

export function percent(value: number): string {
  return `${value.toFixed(value < 10 ? 1 : 0)} %`;
}

export function ms(value: number): string {
  if (value >= 10_000) return duration(value / 1000);
  if (value >= 1000) return `${digits(value / 1000)} s`;
  return `${digits(value)} ms`;
}

/** Seconds as the two largest units. */
export function duration(seconds: number): string {
  const total = Math.max(0, Math.floor(seconds));
  const parts: [number, string][] = [
    [Math.floor(total / 86_400), "d"],
    [Math.floor(total / 3600) % 24, "h"],
    [Math.floor(total / 60) % 60, "min"],
    [total % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  if (first < 0) return "0 s";
  const shown = parts.slice(first, first + 2).filter(([number]) => number > 0);
  return shown.map(([number, unit]) => `${number} ${unit}`).join(" ");
}

export function time(unixMs: number): string {
  return new Date(unixMs).toLocaleString("en-GB", { hour12: false });
}

/** Three significant digits at most. */
function digits(value: number): string {
  if (value === 0) return "0";
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
