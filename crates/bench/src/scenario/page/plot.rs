//! Plots as SVG: lines and bars over linear or logarithmic axes.

use std::fmt::Write as _;

use crate::report::whole;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;

/// A plot. Colors come from classes of the page.
pub struct Plot {
    pub title: &'static str,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// Spans of the x axis with their names, such as phases.
    pub spans: Vec<(String, f64, f64)>,
}

/// An axis.
pub struct Axis {
    pub name: &'static str,
    pub is_log: bool,
    /// A value for reading.
    pub show: fn(f64) -> String,
    /// The axis begins at zero, if it is linear.
    pub from_zero: bool,
}

/// The values of one color.
pub struct Series {
    pub name: String,
    /// The class that gives the color.
    pub class: &'static str,
    pub kind: Kind,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Line,
    /// Points without a line between them.
    Dots,
    /// A bar from the axis to each value, as wide as the distance to the next one.
    Bars,
}

/// An axis with its range.
struct Scale {
    is_log: bool,
    from: f64,
    to: f64,
    /// Range in pixels.
    at: (f64, f64),
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, at: (f64, f64)) -> Option<Scale> {
        let usable = values.filter(|value| value.is_finite() && (!axis.is_log || *value > 0.0));
        let (from, to) =
            usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), value| (from.min(value), to.max(value)));
        if from > to {
            return None;
        }
        let (from, to) = if axis.is_log {
            let (from, to) = (10_f64.powf(from.log10().floor()), 10_f64.powf(to.log10().ceil()));
            (from, if to > from { to } else { from * 10.0 })
        } else {
            let from = if axis.from_zero { from.min(0.0) } else { from };
            let room = if to > from { (to - from) * 0.05 } else { 1.0 };
            (from, to + room)
        };
        Some(Scale { is_log: axis.is_log, from, to, at })
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.from).log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.at.0 + share.clamp(0.0, 1.0) * (self.at.1 - self.at.0)
    }

    /// The values with a line.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = whole((self.to / self.from).log10().round());
            return (0..=decades).map(|decade| self.from * 10_f64.powf(decade as f64)).collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.from / step).ceil();
        (0..12).map(|number| (first + f64::from(number)) * step).take_while(|tick| *tick <= self.to).collect()
    }
}

impl Plot {
    /// The plot with its title and legend; none without values.
    pub fn figure(&self) -> Option<String> {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let x = Scale::new(&self.x, points().map(|point| point.0), (LEFT, WIDTH - RIGHT))?;
        let y = Scale::new(&self.y, points().map(|point| point.1), (HEIGHT - BOTTOM, TOP))?;
        let mut svg = String::new();
        self.draw_spans(&mut svg, &x);
        self.draw_axes(&mut svg, &x, &y);
        for series in &self.series {
            self.draw_series(&mut svg, series, &x, &y);
        }
        let mut legend = String::new();
        for series in self.series.iter().filter(|series| !series.points.is_empty()) {
            let _ = write!(legend, "<span class=\"key {}\">{}</span>", series.class, escaped(&series.name));
        }
        let title = escaped(self.title);
        Some(format!(
            "<figure><figcaption>{title}<span class=\"legend\">{legend}</span></figcaption>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">{svg}</svg></figure>"
        ))
    }

    fn draw_spans(&self, svg: &mut String, x: &Scale) {
        for (number, (name, from, until)) in self.spans.iter().enumerate() {
            let (left, right) = (x.place(*from), x.place(*until));
            let class = if number % 2 == 0 { "span" } else { "span other" };
            let (width, height) = ((right - left).max(0.0), HEIGHT - BOTTOM - TOP);
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
            );
            // A narrow span has no room for its name.
            if width > 7.0 * name.len() as f64 {
                let (middle, name) = (f64::midpoint(left, right), escaped(name));
                let _ = write!(svg, "<text class=\"name\" x=\"{middle:.1}\" y=\"{:.1}\">{name}</text>", TOP + 12.0);
            }
        }
    }

    fn draw_axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        for tick in y.ticks() {
            let at = y.place(tick);
            let (right, text) = (WIDTH - RIGHT, escaped(&(self.y.show)(tick)));
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        for tick in x.ticks() {
            let (at, text) = (x.place(tick), escaped(&(self.x.show)(tick)));
            let _ = write!(svg, "<text class=\"x\" x=\"{at:.1}\" y=\"{:.1}\">{text}</text>", HEIGHT - BOTTOM + 15.0);
        }
        let (middle, bottom) = (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 4.0);
        let _ =
            write!(svg, "<text class=\"x axis\" x=\"{middle:.1}\" y=\"{bottom:.1}\">{}</text>", escaped(self.x.name));
    }

    fn draw_series(&self, svg: &mut String, series: &Series, x: &Scale, y: &Scale) {
        let class = series.class;
        let base = HEIGHT - BOTTOM;
        if series.kind == Kind::Line {
            let path: Vec<String> =
                series.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x.place(*at), y.place(*value))).collect();
            let _ = write!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", path.join(" "));
        }
        for (number, (at, value)) in series.points.iter().enumerate() {
            let (left, top) = (x.place(*at), y.place(*value));
            let place = format!("{} {}, {} {}", self.x.name, (self.x.show)(*at), series.name, (self.y.show)(*value));
            let title = format!("<title>{}</title>", escaped(&place));
            if series.kind == Kind::Bars {
                let next = series.points.get(number + 1).map_or(left + 3.0, |next| x.place(next.0));
                // Neighbours are a pixel apart.
                let (width, height) = ((next - left - 1.0).clamp(1.0, 24.0), base - top);
                let _ = write!(
                    svg,
                    "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
                     height=\"{height:.1}\">{title}</rect>"
                );
            } else {
                let class = if series.kind == Kind::Dots { format!("dot {class}") } else { "hit".to_owned() };
                let _ =
                    write!(svg, "<circle class=\"{class}\" cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"4\">{title}</circle>");
            }
        }
    }
}

/// Text for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(is_log: bool) -> Axis {
        Axis { name: "x", is_log, show: |value| value.to_string(), from_zero: true }
    }

    #[test]
    fn scales_place_values_between_their_ends() {
        let linear = Scale::new(&axis(false), [0.0, 100.0].into_iter(), (0.0, 210.0)).unwrap();
        assert!((linear.place(52.5) - 105.0).abs() < 1e-9);
        assert_eq!(linear.ticks(), [0.0, 50.0, 100.0]);
        let log = Scale::new(&axis(true), [0.0, 2.0, 900.0].into_iter(), (0.0, 300.0)).unwrap();
        assert!((log.place(10.0) - 100.0).abs() < 1e-9);
        assert_eq!(log.ticks().len(), 4, "1, 10, 100 and 1000");
        assert!(Scale::new(&axis(true), [0.0].into_iter(), (0.0, 1.0)).is_none());
    }

    #[test]
    fn names_are_escaped() {
        let plot = Plot {
            title: "a < b",
            x: axis(false),
            y: axis(false),
            series: vec![Series {
                name: "<i>".into(),
                class: "s1",
                kind: Kind::Line,
                points: vec![(0.0, 1.0), (1.0, 2.0)],
            }],
            spans: vec![("p<".into(), 0.0, 1.0)],
        };
        let svg = plot.figure().unwrap();
        assert!(svg.contains("a &lt; b") && svg.contains("&lt;i&gt;") && !svg.contains("<i>"));
        assert!(Plot { series: Vec::new(), ..plot }.figure().is_none());
    }
}
