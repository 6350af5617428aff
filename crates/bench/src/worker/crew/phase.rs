//! The current phase of a crew, and what is due in it.

use super::schedule::Schedule;
use crate::proc;
use crate::scenario::crew_commands::{PhaseOrder, Place};
use crate::scenario::rate_curve::RateCurve;

pub struct Phase {
    pub cpu: PhaseCpu,
    /// None when it is over.
    pub end_ns: Option<u64>,
    /// Connections of this process that should be open, without those that have failed or ended.
    pub connections: usize,
    pub connects: Option<Schedule>,
    pub churn: Schedule,
    /// Members to close and replace; the next one is this.
    pub churn_next: usize,
    pub publications: Schedule,
    pub published: usize,
    pub inputs: Schedule,
    /// Inputs that were due.
    pub inputs_due: usize,
}

impl Phase {
    /// Nothing is due.
    pub fn none(place: &Place) -> Self {
        let never = || Schedule::constant(0.0, 0, (place.part, place.parts));
        Phase {
            cpu: PhaseCpu::from(proc::now_ns()),
            end_ns: None,
            connections: 0,
            connects: None,
            churn: never(),
            churn_next: 0,
            publications: never(),
            published: 0,
            inputs: never(),
            inputs_due: 0,
        }
    }

    /// The part of this process in an order to the crew.
    pub fn of(order: &PhaseOrder, connect_rate: Option<f64>, place: &Place, before: &Phase) -> Self {
        let part_of = (place.part, place.parts);
        let span = (order.start_ns, order.start_ns + order.duration_ns);
        let share = order.connections.saturating_sub(place.part).div_ceil(place.parts);
        Phase {
            cpu: PhaseCpu::from(order.start_ns),
            end_ns: Some(span.1),
            connections: usize::try_from(share).unwrap_or(usize::MAX),
            connects: connect_rate.map(|rate| Schedule::constant(rate, order.start_ns, part_of)),
            churn: Schedule::new(RateCurve::constant(order.churn), span, part_of),
            churn_next: before.churn_next,
            publications: Schedule::new(order.publish, span, part_of),
            inputs: Schedule::new(order.inputs, span, part_of),
            ..Phase::none(place)
        }
    }

    /// The phase ends early: nothing more is due, and these connections stay.
    pub fn cut(&mut self, connections: usize, place: &Place) {
        let (cpu, churn_next) = (self.cpu, self.churn_next);
        *self = Phase { cpu, connections, churn_next, ..Phase::none(place) };
    }

    /// When something is due next, without connections.
    pub fn next_ns(&self) -> Option<u64> {
        let next = [
            self.cpu.start_ns(),
            self.churn.next_ns(),
            self.publications.next_ns(),
            self.inputs.next_ns(),
            self.end_ns,
        ];
        next.into_iter().flatten().min()
    }
}

/// The processor time of this process in a phase: from its beginning until its end, or until the last arrival after it. The wait
/// for what never comes is no part of it.
#[derive(Debug, Clone, Copy)]
pub struct PhaseCpu(CpuReadings);

#[derive(Debug, Clone, Copy)]
enum CpuReadings {
    /// The phase begins at this time.
    Before {
        start_ns: u64,
        cpu_ns: u64,
    },
    During {
        cpu_ns: u64,
    },
    After {
        cpu_ns: u64,
        end_cpu_ns: u64,
    },
}

impl PhaseCpu {
    fn from(start_ns: u64) -> Self {
        PhaseCpu(CpuReadings::Before { start_ns, cpu_ns: proc::own_cpu_ns() })
    }

    /// When the first reading is due, if it is not taken yet.
    fn start_ns(&self) -> Option<u64> {
        match self.0 {
            CpuReadings::Before { start_ns, .. } => Some(start_ns),
            CpuReadings::During { .. } | CpuReadings::After { .. } => None,
        }
    }

    /// Takes the first reading, if its time has come.
    pub fn begin_due(&mut self, now_ns: u64) {
        if self.start_ns().is_some_and(|start_ns| now_ns >= start_ns) {
            self.0 = CpuReadings::During { cpu_ns: proc::own_cpu_ns() };
        }
    }

    /// The phase is over, or something of it has arrived afterwards.
    pub fn end(&mut self) {
        let cpu_ns = self.first_ns();
        self.0 = CpuReadings::After { cpu_ns, end_cpu_ns: proc::own_cpu_ns() };
    }

    /// Something has arrived.
    pub fn arrived(&mut self) {
        if matches!(self.0, CpuReadings::After { .. }) {
            self.end();
        }
    }

    fn first_ns(&self) -> u64 {
        match self.0 {
            CpuReadings::Before { cpu_ns, .. } | CpuReadings::During { cpu_ns } | CpuReadings::After { cpu_ns, .. } => {
                cpu_ns
            }
        }
    }

    pub fn spent_ns(&self) -> u64 {
        match self.0 {
            CpuReadings::After { cpu_ns, end_cpu_ns } => end_cpu_ns - cpu_ns,
            CpuReadings::Before { .. } | CpuReadings::During { .. } => proc::own_cpu_ns() - self.first_ns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses some processor time.
    fn work() {
        let before_ns = proc::own_cpu_ns();
        while proc::own_cpu_ns() - before_ns < 5_000_000 {
            std::hint::black_box(());
        }
    }

    #[test]
    fn processor_time_counts_from_the_beginning_of_a_phase_until_its_last_arrival() {
        let mut cpu = PhaseCpu::from(1_000);
        work();
        cpu.begin_due(999);
        assert_eq!(cpu.start_ns(), Some(1_000));
        cpu.begin_due(1_000);
        assert_eq!(cpu.start_ns(), None);
        cpu.arrived();
        let first_ns = cpu.first_ns();
        work();
        cpu.end();
        let spent_ns = cpu.spent_ns();
        assert!((5_000_000..).contains(&spent_ns));
        work();
        assert_eq!(cpu.spent_ns(), spent_ns, "the wait does not count");
        cpu.arrived();
        assert!(cpu.spent_ns() >= spent_ns + 5_000_000);
        assert_eq!(cpu.first_ns(), first_ns, "the time before the phase does not count");
    }
}
