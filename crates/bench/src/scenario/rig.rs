//! The rig of all scenarios that a profile describes: it starts the processes of the crews, gives them the phases, and
//! collects what they report.

use std::thread;
use std::time::{Duration, Instant};

use super::crew_commands::{
    CrewCommand, CrewPlan, CrewReply, CrewReport, CrewRole, Load, PhaseOrder, Place, SocketKind, StreamSpan,
};
use super::profile::Profile;
use super::rate_curve::RateCurve;
use super::sampler::{CpuReading, CpuUsage, Sampler, Usage};
use super::streams::Streams;
use super::target::ScenarioTarget;
use crate::control::{MessageContent, Role, Target, WorkerCommand, WorkerReply};
use crate::error::Error;
use crate::interrupt;
use crate::proc::{self, Cores};
use crate::progress::Progress;
use crate::report::whole;
use crate::tally::{Tally, WORKERS_MAX};
use crate::worker::direct;
use crate::worker_process::Worker;

/// Default number of connections of one process, well below 20,000 open files.
const CONNECTIONS_PER_WORKER: u64 = 4_000;
/// The same without open files: a million clients use four threads.
const DIRECT_CONNECTIONS_PER_WORKER: u64 = 250_000;
/// Local addresses of a process, at least, and the connections for which it has one more. Closed connections hold their ports for a
/// minute, and one address has 28,000.
const SOURCES_MIN: u64 = 8;
const CONNECTIONS_PER_SOURCE: u64 = 4_000;
/// Open files of a process that are not connections.
const OTHER_FILES: u64 = 64;
const HANDSHAKES_MAX: usize = 256;
/// Time from an order to the beginning of its phase, in which it reaches all processes.
const LEAD_NS: u64 = 30_000_000;
/// How often the target's process is looked for in a phase.
const CHECK_NS: u64 = 100_000_000;
/// How much later than a phase a process may answer. More means that it is stopped.
const ANSWER_NS: u64 = 60_000_000_000;
/// Maximum wait for what is missing at the end of a phase, and what each connection adds to it.
const SETTLE_NS: u64 = 60_000_000_000;
const SETTLE_CONNECTION_NS: u64 = 10_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A target and the crews that load it.
pub struct ScenarioRig<'a> {
    // Dropped in this order, so that clients disconnect before the target ends.
    crews: Vec<CrewProcesses>,
    sampler: Sampler,
    target: ScenarioTarget,
    profile: &'a Profile,
    tally: Tally,
    _streams: Streams,
    pub run_start_ns: u64,
}

/// The processes of one crew.
struct CrewProcesses {
    plan: CrewPlan,
    workers: Vec<Worker>,
    /// Connections that were ordered last.
    connections: u64,
}

/// What happened in a phase.
#[derive(Default, Clone)]
pub struct Window {
    /// Seconds of the run.
    pub from_s: f64,
    pub until_s: f64,
    /// The sum of all crews.
    pub report: CrewReport,
    pub usage: Usage,
}

impl Window {
    /// Adds a later window.
    pub fn add(&mut self, later: &Window) {
        self.until_s = later.until_s;
        self.report.add(&later.report, true);
        self.usage.add(&later.usage);
    }
}

impl<'a> ScenarioRig<'a> {
    /// Starts the client processes.
    pub fn start(
        profile: &'a Profile,
        target: ScenarioTarget,
        api_key: &str,
        cores: &Cores,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let publishers = streams(profile);
        let streams = Streams::create(publishers.iter().map(|span| span.count as usize).sum())?;
        let tally = Tally::create()?;
        let run_start_ns = proc::now_ns();
        let mut plans =
            Plans { profile, target: &target, api_key, cores, run_start_ns, publishers, worker: 0, source: 0 };
        progress.doing("starting the clients".into());
        let mut crews = Vec::new();
        for plan in &profile.crews {
            let workers = plans.start(plan, &tally, &streams)?;
            crews.push(CrewProcesses { plan: plan.clone(), workers, connections: 0 });
        }
        let sampler = Sampler::start(target.pid, run_start_ns, profile.interval);
        Ok(ScenarioRig { crews, sampler, target, profile, tally, _streams: streams, run_start_ns })
    }

    /// The samples of the server.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Connects the publishers, which stay for the whole run.
    pub fn connect_publishers(&mut self, progress: &Progress) -> Result<Window, Error> {
        let orders: Vec<PhaseOrder> = self
            .crews
            .iter()
            .map(|crew| {
                let connections = if crew.plan.publish > 0.0 { crew.plan.connections } else { 0 };
                order(connections, 0, 0.0, [RateCurve::constant(0.0); 2])
            })
            .collect();
        let window = self.window(&orders, "connecting publishers", progress)?;
        let failed: u64 = window.report.connections.failed.values().sum();
        if failed > 0 {
            let did = format!("refused {failed} publishers: {:?}", window.report.connections.failed);
            let remedy = "check its address and its log, and that anonymous clients may connect".into();
            return Err(Error::Server { did, remedy });
        }
        Ok(window)
    }

    /// Opens or closes connections until each crew has those of the phase, while publications go on at the rate of the
    /// phase before. None if there is nothing to do.
    pub fn ramp(&mut self, phase: usize, progress: &Progress) -> Result<Option<Window>, Error> {
        let factor = phase.checked_sub(1).map_or(0.0, |before| self.profile.phases[before].rate);
        let mut seconds = 0.0_f64;
        let mut is_needed = false;
        let mut orders = Vec::new();
        for crew in &self.crews {
            let connections = self.profile.connections(&crew.plan, phase);
            let more = connections.saturating_sub(crew.connections);
            is_needed |= connections != crew.connections;
            seconds = seconds.max(crew.plan.connect_rate.map_or(0.0, |rate| more as f64 / rate));
            let rates = crew.plan.rates().map(|rate| RateCurve::constant(factor * rate));
            orders.push(order(connections, 0, 0.0, rates));
        }
        if !is_needed {
            return Ok(None);
        }
        for order in &mut orders {
            order.duration_ns = whole(seconds * 1e9);
        }
        let label = format!("connecting for {}", self.profile.phases[phase].name);
        self.window(&orders, &label, progress).map(Some)
    }

    /// Runs a phase once. Only its first repetition has the rise of its rate.
    pub fn phase(&mut self, phase: usize, repetition: u32, progress: &Progress) -> Result<Window, Error> {
        let plan = &self.profile.phases[phase];
        let before = phase.checked_sub(1).map_or(plan.rate, |before| self.profile.phases[before].rate);
        let orders: Vec<PhaseOrder> = self
            .crews
            .iter()
            .map(|crew| {
                let curve = |rate: f64| {
                    if repetition == 0 && !plan.rise.is_zero() {
                        RateCurve { from: before * rate, to: plan.rate * rate, rise_s: plan.rise.as_secs_f64() }
                    } else {
                        RateCurve::constant(plan.rate * rate)
                    }
                };
                let connections = self.profile.connections(&crew.plan, phase);
                order(
                    connections,
                    plan.duration.as_nanos() as u64,
                    plan.churn * crew.plan.churn,
                    crew.plan.rates().map(curve),
                )
            })
            .collect();
        let label = match plan.repeat {
            1 => plan.name.clone(),
            repeat => format!("{}, {} of {repeat}", plan.name, repetition + 1),
        };
        self.window(&orders, &label, progress)
    }

    /// Gives an order to each crew, waits for its end, and then until everything has arrived.
    fn window(&mut self, orders: &[PhaseOrder], label: &str, progress: &Progress) -> Result<Window, Error> {
        let mark = self.sampler.mark(self.target.metrics());
        let start_ns = proc::now_ns() + LEAD_NS;
        for (crew, order) in self.crews.iter_mut().zip(orders) {
            crew.connections = order.connections;
            let command = CrewCommand::Phase(PhaseOrder { start_ns, ..order.clone() });
            crew.send(&command)?;
        }
        let duration_ns = orders.iter().map(|order| order.duration_ns).max().unwrap_or(0);
        progress.counting(label.to_owned(), duration_ns / 1_000_000);
        thread::sleep(Duration::from_nanos(start_ns.saturating_sub(proc::now_ns())));
        let mut span = PhaseSpan::begin(start_ns, self.tally.deliveries(), self.sampler.cpu());
        let mut check_ns = start_ns;
        let over = |reply| matches!(reply, CrewReply::PhaseOver).then_some(());
        let ended = self.replies(start_ns + duration_ns + ANSWER_NS, over, |tally| {
            span.look(tally.deliveries(), || self.sampler.cpu());
            let now_ns = proc::now_ns();
            progress.at(now_ns.saturating_sub(start_ns) / 1_000_000);
            if now_ns < check_ns {
                return Ok(());
            }
            check_ns = now_ns + CHECK_NS;
            self.check()
        });
        // What was measured until an early end is not lost.
        match ended {
            Ok(_) => span.over(start_ns + duration_ns, self.sampler.cpu()),
            Err(_) if self.check().is_err() => span.over(proc::now_ns(), self.sampler.cpu()),
            Err(error) => return Err(error),
        }
        let most = orders.iter().map(|order| order.connections).max().unwrap_or(0);
        let patience_ns = SETTLE_NS + most * SETTLE_CONNECTION_NS;
        for crew in &mut self.crews {
            crew.send(&CrewCommand::Settle { patience_ns })?;
        }
        let report = |reply| match reply {
            CrewReply::Settled(report) => Some(*report),
            // It is still there after an early end.
            CrewReply::PhaseOver => None,
        };
        let reports = self.replies(proc::now_ns() + patience_ns + ANSWER_NS, report, |tally| {
            span.look(tally.deliveries(), || self.sampler.cpu());
            Ok(())
        })?;
        let mut window = Window { report: CrewReport::default(), ..self.usage_since(&mark, start_ns) };
        for report in &reports {
            window.report.add(report, false);
        }
        window.usage.seconds = span.seconds();
        window.usage.cpu = span.cpu();
        Ok(window)
    }

    /// Fails if the run was interrupted, or if the target has ended.
    pub fn check(&self) -> Result<(), Error> {
        interrupt::check()?;
        if self.sampler.has_lost_its_process() { Err(self.target.ended()) } else { Ok(()) }
    }

    fn usage_since(&self, mark: &super::sampler::Mark, start_ns: u64) -> Window {
        let seconds = |ns: u64| ns.saturating_sub(self.run_start_ns) as f64 / 1e9;
        Window {
            from_s: seconds(start_ns),
            until_s: seconds(proc::now_ns()),
            report: CrewReport::default(),
            usage: self.sampler.since(mark, self.target.metrics()),
        }
    }

    /// One reply of each process.
    fn replies<T>(
        &self,
        deadline_ns: u64,
        take: impl Fn(CrewReply) -> Option<T>,
        mut look: impl FnMut(&Tally) -> Result<(), Error>,
    ) -> Result<Vec<T>, Error> {
        let failed = |message: &str| Error::Worker { role: "crew", message: message.to_owned() };
        let mut replies = Vec::new();
        for worker in self.crews.iter().flat_map(|crew| &crew.workers) {
            let taken = loop {
                look(&self.tally)?;
                match worker.answer_within(LOOK_EVERY)? {
                    Some(WorkerReply::Crew(reply)) => {
                        if let Some(taken) = take(reply) {
                            break taken;
                        }
                    }
                    Some(other) => return Err(worker.unexpected(&other)),
                    None if proc::now_ns() > deadline_ns => return Err(failed("it does not answer; is it stopped?")),
                    None => {}
                }
            };
            replies.push(taken);
        }
        Ok(replies)
    }

    /// Waits until the server's memory changes by less than a thousandth within a second, for ten seconds at most.
    pub fn settle_memory(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let Some(mut before) = self.sampler.now() else { return };
        while Instant::now() < deadline {
            thread::sleep(Duration::from_secs(1));
            let Some(now) = self.sampler.now() else { return };
            if now.anon_bytes.abs_diff(before.anon_bytes) < before.anon_bytes / 1000 {
                return;
            }
            before = now;
        }
    }
}

impl CrewProcesses {
    fn send(&mut self, command: &CrewCommand) -> Result<(), Error> {
        self.workers.iter_mut().try_for_each(|worker| worker.send_command(&WorkerCommand::Crew(command.clone())))
    }
}

/// The time of a phase: from its beginning until its end, or until the last delivery after it. The wait for publications that
/// never come is no part of it, nor is the processor time in that wait.
struct PhaseSpan {
    start_ns: u64,
    deliveries: u64,
    /// The last delivery that was seen, or the end of the phase.
    until_ns: u64,
    is_over: bool,
    /// Processor time at the beginning, and the latest of the phase.
    cpu: (Option<CpuReading>, Option<CpuReading>),
}

impl PhaseSpan {
    fn begin(start_ns: u64, deliveries: u64, cpu: Option<CpuReading>) -> Self {
        PhaseSpan { start_ns, deliveries, until_ns: start_ns, is_over: false, cpu: (cpu, None) }
    }

    /// Looks for further deliveries. Before the end, none of them is the last one.
    fn look(&mut self, deliveries: u64, cpu: impl FnOnce() -> Option<CpuReading>) {
        if deliveries != self.deliveries {
            self.deliveries = deliveries;
            self.until_ns = proc::now_ns();
            if self.is_over {
                self.cpu.1 = cpu();
            }
        }
    }

    fn over(&mut self, end_ns: u64, cpu: Option<CpuReading>) {
        self.is_over = true;
        self.until_ns = self.until_ns.max(end_ns);
        self.cpu.1 = cpu;
    }

    fn seconds(&self) -> f64 {
        self.until_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    fn cpu(&self) -> Option<CpuUsage> {
        Some(self.cpu.0?.until(self.cpu.1?))
    }
}

/// What the roles of all processes have in common.
struct Plans<'a> {
    profile: &'a Profile,
    target: &'a ScenarioTarget,
    api_key: &'a str,
    cores: &'a Cores,
    run_start_ns: u64,
    publishers: Vec<StreamSpan>,
    /// Number of the next process.
    worker: usize,
    /// Number of the next local address.
    source: u32,
}

impl Plans<'_> {
    fn start(&mut self, plan: &CrewPlan, tally: &Tally, streams: &Streams) -> Result<Vec<Worker>, Error> {
        let connections = self.profile.connections_max(plan);
        let plan = &CrewPlan { sockets: possible_sockets(plan, self.profile.message.tls), ..plan.clone() };
        let per_worker = match plan.sockets {
            SocketKind::Descriptors => CONNECTIONS_PER_WORKER,
            SocketKind::Direct => DIRECT_CONNECTIONS_PER_WORKER,
        };
        let parts = plan.workers.unwrap_or_else(|| connections.div_ceil(per_worker)).max(1);
        let files = proc::raise_open_files_limit();
        if plan.sockets == SocketKind::Descriptors && connections.div_ceil(parts) + OTHER_FILES > files {
            return Err(Error::Scenario(format!(
                "crew.{} needs {connections} open files in {parts} processes, and each may have {files}; raise its \
                 workers or the limit (ulimit -n)",
                plan.name
            )));
        }
        let mut workers = Vec::new();
        for part in 0..parts {
            if self.worker >= WORKERS_MAX {
                let message = format!("the crews need more than {WORKERS_MAX} processes; lower their workers");
                return Err(Error::Scenario(message));
            }
            let role = self.role(plan, (part, parts), tally, streams);
            workers.push(Worker::start(&Role::Crew(Box::new(role)))?);
            self.worker += 1;
        }
        Ok(workers)
    }

    fn role(&mut self, plan: &CrewPlan, (part, parts): (u64, u64), tally: &Tally, streams: &Streams) -> CrewRole {
        CrewRole {
            target: self.target_of_clients(),
            operators: self.target.operators,
            api_key: self.api_key.to_owned(),
            plan: plan.clone(),
            place: self.place(plan, (part, parts)),
            load: Load {
                channels: self.profile.channels.count,
                publishers: self.publishers.clone(),
                payload_bytes: self.profile.message.payload_bytes,
            },
            tally: tally.path(),
            streams: streams.files(),
            run_start_ns: self.run_start_ns,
            interval_ns: self.profile.interval.as_nanos() as u64,
        }
    }

    fn target_of_clients(&self) -> Target {
        let profile = self.profile;
        Target {
            address: self.target.address,
            path: self.target.path.clone(),
            encoding: profile.message.encoding,
            channel: format!("{}{:x}", profile.channels.name, std::process::id()),
            join: None,
            content: profile.message.speaks.map_or(MessageContent::Protocol, MessageContent::Peer),
            tls: profile.message.tls,
        }
    }

    fn place(&mut self, plan: &CrewPlan, (part, parts): (u64, u64)) -> Place {
        let share = self.profile.connections_max(plan).div_ceil(parts);
        let sources = share.div_ceil(CONNECTIONS_PER_SOURCE).max(SOURCES_MIN) as u32;
        let first = self.source;
        self.source += sources;
        Place {
            worker: self.worker,
            part,
            parts,
            connections: usize::try_from(share).unwrap_or(usize::MAX),
            sources: first..self.source,
            handshakes_max: HANDSHAKES_MAX.div_ceil(parts as usize),
            cores: self.cores.clients.clone(),
        }
    }
}

/// The sockets that a crew can have on this machine.
fn possible_sockets(plan: &CrewPlan, has_tls: bool) -> SocketKind {
    if plan.sockets == SocketKind::Descriptors {
        return SocketKind::Descriptors;
    }
    if has_tls {
        super::note(&format!("crew.{} has file descriptors, because of message.tls", plan.name));
        return SocketKind::Descriptors;
    }
    match direct::probe() {
        Ok(()) => SocketKind::Direct,
        Err(why) => {
            super::note(&format!(
                "crew.{} has file descriptors, because {why}; direct sockets need Linux 6.13 or newer",
                plan.name
            ));
            SocketKind::Descriptors
        }
    }
}

fn streams(profile: &Profile) -> Vec<StreamSpan> {
    let mut first = 0;
    let publishers = profile.crews.iter().filter(|crew| crew.publish > 0.0);
    let span = |crew: &CrewPlan| {
        let count = u64::from(profile.channels.count).max(crew.connections) as u32;
        let span = StreamSpan { of: crew.name.clone(), first, count, connections: crew.connections };
        first += count;
        span
    };
    publishers.map(span).collect()
}

/// An order whose beginning is set when it is sent.
fn order(connections: u64, duration_ns: u64, churn: f64, [publish, inputs]: [RateCurve; 2]) -> PhaseOrder {
    PhaseOrder { start_ns: 0, duration_ns, connections, churn, publish, inputs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Ticks;

    #[test]
    fn the_wait_for_what_never_comes_is_no_part_of_a_phase() {
        let reading = |at_ms: u64, cpu_ms: u64| {
            let ticks = Ticks { user: 0, system: 0 };
            Some(CpuReading { at_ns: at_ms * 1_000_000, cpu_ns: cpu_ms * 1_000_000, ticks })
        };
        let start_ns = proc::now_ns();
        let mut span = PhaseSpan::begin(start_ns, 7, reading(0, 50));
        span.look(9, || panic!("the phase goes on"));
        span.over(start_ns + 1_000_000_000, reading(1_000, 550));
        assert!((span.cpu().unwrap().cores() - 0.5).abs() < 1e-9);
        assert!((span.seconds() - 1.0).abs() < 1e-9, "what came before the end does not shorten it");
        span.look(10, || reading(1_250, 1_050));
        span.look(10, || panic!("nothing has arrived"));
        assert!((span.cpu().unwrap().cores() - 0.8).abs() < 1e-9);
        let mut unknown = PhaseSpan::begin(start_ns, 0, None);
        unknown.over(start_ns, None);
        assert!(unknown.cpu().is_none());
    }
}
