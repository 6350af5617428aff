//! Compares the position that a client shows for an object in a far cell, by the interpolation of
//! `docs/rooms-protocol.md`, with its true position. Covers far cells that are on time and far cells that a bandwidth
//! limit postpones.

use dunlin_protocol::Encoding;
use dunlin_rooms::{
    Base, CellIndex, FormatSet, Grid, GridShape, Mirror, ObjectId, ObjectView, Replica, UpdateWriter, Zones, wire,
};

const VIEW: CellIndex = CellIndex(0);
const FAR: CellIndex = CellIndex(2);
const ID: ObjectId = ObjectId(1);
const INTERVAL_TICKS: u32 = 6;
const CELL_UNITS: u32 = 1_000;
/// Units that the object moves in a tick.
const SPEED: u32 = 5;
const TICKS: u32 = 1_200;
/// The time from one snapshot to the arrival of the next, plus a margin of 2 ms.
const DELAY_TICKS: f64 = 1.12;
/// Rendered frames per tick.
const PICTURES: u32 = 4;

/// The rule by which a client decides until when an object stood still before it moved.
#[derive(Clone, Copy)]
enum StoodUntil {
    /// Until the last multiple of the interval that is not above the base, which is right without a bandwidth limit.
    Multiple,
    /// Until the last snapshot with a far cell, if far cells have been late and may have waited since then.
    LastSeen,
}

/// The errors of the shown positions, in ticks of the object's movement.
#[derive(Debug)]
struct Shown {
    error_mean: f64,
    error_max: f64,
    /// The largest step from one rendered frame to the next. The object itself moves by 1 / `PICTURES`.
    step_max: f64,
}

/// The object moves back and forth within the cell.
fn x_at(tick: u32) -> u32 {
    50 + (tick * SPEED % 1_800).abs_diff(900)
}

#[expect(clippy::cast_sign_loss, reason = "no tick is negative")]
fn true_x(tick: f64) -> f64 {
    let (before, after) = (f64::from(x_at(tick as u32)), f64::from(x_at(tick as u32 + 1)));
    before + (after - before) * tick.fract()
}

fn mirror(grid: &Grid) -> Mirror {
    Mirror::new(grid.clone(), 60, update(grid, 1, true), [b"}}}", b""])
}

fn update(grid: &Grid, tick: u32, is_keyframe: bool) -> std::sync::Arc<dunlin_rooms::TickUpdate> {
    let mut writer = UpdateWriter::default();
    writer.begin(tick, u64::from(tick), FormatSet::default().with(Encoding::Protobuf), is_keyframe);
    let object = ObjectView { id: ID, kind: 1, x: x_at(tick), y: 0, state: b"s" };
    let changed = (!is_keyframe).then_some(object);
    writer.cell(FAR, changed.into_iter(), [].into_iter(), [object].into_iter());
    std::sync::Arc::new(writer.finish(grid))
}

/// The known positions of the object, and the tick of each.
struct Track {
    rule: StoodUntil,
    /// Whether the client delays the object by the time that its positions arrive later than snapshots.
    is_delayed: bool,
    samples: Vec<(f64, f64)>,
    seen_tick: u32,
    /// Whether a far cell has arrived when it was not due.
    is_late: bool,
    lag_ticks: f64,
}

impl Track {
    fn moved(&mut self, base: u32, tick: u32, from_x: f64, to_x: f64) {
        let multiple = base / INTERVAL_TICKS * INTERVAL_TICKS;
        self.is_late |= tick / INTERVAL_TICKS * INTERVAL_TICKS <= base;
        let known_tick = match self.rule {
            StoodUntil::LastSeen if self.is_late && base - self.seen_tick < 13 => self.seen_tick,
            StoodUntil::LastSeen | StoodUntil::Multiple => multiple,
        };
        if self.samples.last().is_none_or(|(known, _)| *known < f64::from(known_tick)) {
            self.samples.push((known_tick.into(), from_x));
        }
        let step_ticks = f64::from(tick) - self.samples.last().map_or(0.0, |(known, _)| *known);
        self.samples.push((tick.into(), to_x));
        self.seen_tick = tick;
        if self.is_delayed {
            self.lag_ticks = self.lag_ticks.max(step_ticks - 1.0);
        }
    }

    fn x(&self, at: f64) -> f64 {
        let at = at - self.lag_ticks;
        let next = self.samples.partition_point(|(tick, _)| *tick <= at);
        let Some((before, from)) = next.checked_sub(1).map(|last| self.samples[last]) else { return self.samples[0].1 };
        let Some((after, to)) = self.samples.get(next) else { return from };
        from + (to - from) * (at - before) / (after - before)
    }
}

fn show(rule: StoodUntil, is_delayed: bool, is_postponed: bool) -> Shown {
    let shape = GridShape {
        columns: 8,
        rows: 1,
        cell_units: CELL_UNITS,
        near_cells: 1,
        far_cells: 2,
        far_interval_ticks: INTERVAL_TICKS as u16,
    };
    let grid = Grid::new(shape).expect("a good shape");
    let (mut mirror, mut replica) = (mirror(&grid), Replica::default());
    let (mut base, mut zones) = (Base::default(), None);
    let mut track = Track { rule, is_delayed, samples: Vec::new(), seen_tick: 1, is_late: false, lag_ticks: 0.0 };
    let (mut errors, mut step_max, mut shown) = (Vec::new(), 0.0_f64, None);
    for tick in 2..TICKS {
        mirror.apply(update(&grid, tick, false));
        let body = mirror.body_of_zones(Encoding::Protobuf, VIEW, base, zones);
        let mut frame = Vec::new();
        wire::write_player_header(Encoding::Protobuf, 0, 0, None, &mut frame);
        frame.extend_from_slice(&body.bytes[..body.data_bytes]);
        let x = |replica: &Replica| replica.object(ID).map(|object| f64::from(object.position.x % CELL_UNITS));
        let before = x(&replica);
        replica.apply(Encoding::Protobuf, &frame).expect("a good snapshot");
        let after = x(&replica).expect("it is seen");
        match before {
            None => track.samples.push((tick.into(), after)),
            Some(before) if before.to_bits() != after.to_bits() => track.moved(base.tick, tick, before, after),
            Some(_) => {}
        }
        base = Base { tick, view: VIEW };
        zones = Some(Zones { known_ticks: body.zone_ticks, waiting: [false, false, false, is_postponed] });
        for picture in 0..PICTURES {
            let at = f64::from(tick) + f64::from(picture) / f64::from(PICTURES) - DELAY_TICKS;
            let x = track.x(at);
            // The delay settles in the first second.
            if tick > 60 {
                errors.push((x - true_x(at)).abs() / f64::from(SPEED));
                step_max = shown.map_or(step_max, |before: f64| step_max.max((x - before).abs() / f64::from(SPEED)));
            }
            shown = Some(x);
        }
    }
    let error_max = errors.iter().fold(0.0_f64, |max, error| max.max(*error));
    Shown { error_mean: errors.iter().sum::<f64>() / errors.len() as f64, error_max, step_max }
}

/// `docs/rooms-protocol.md` has these figures.
#[test]
fn a_far_object_moves_evenly_with_delayed_interpolation() {
    let walk = 1.0 / f64::from(PICTURES);
    for is_postponed in [false, true] {
        let gap_ticks = if is_postponed { 13.0 } else { f64::from(INTERVAL_TICKS) };
        let [before, old_rule, after] =
            [(StoodUntil::Multiple, false), (StoodUntil::Multiple, true), (StoodUntil::LastSeen, true)]
                .map(|(rule, is_delayed)| show(rule, is_delayed, is_postponed));
        println!(
            "postponed: {is_postponed}\nin time {before:.2?}\nlater {old_rule:.2?}\nlater, as of the last update {after:.2?}"
        );
        // Without the delay, the object stands still for most of the time between two updates, and then jumps.
        assert!(before.step_max > gap_ticks * 0.75 && before.error_max > gap_ticks - 2.0, "{before:?}");
        // With the delay, the object lags by the delay of far cells and moves at its true speed.
        assert!((after.step_max - walk).abs() < 0.01, "{after:?}");
        assert!(after.error_max < gap_ticks - 1.0 + 0.01 && after.error_mean <= after.error_max, "{after:?}");
        // The delay alone is sufficient only if the server postpones no far cell.
        assert_eq!(old_rule.step_max > 10.0 * walk, is_postponed, "{old_rule:?}");
    }
}
