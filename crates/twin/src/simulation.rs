//! A core under simulation: its streams driven and watched, its registers written.

use std::collections::VecDeque;

use crate::bus::Bus;
use crate::ffi::{BUS_MAX, Inputs, Model, Outputs};
use crate::outcome::Marked;
use crate::{BusError, CoreEvent, Disposition, Outcome, Pressure, Timing, TwinError};

/// Clocks without any beat after which a run is given up; counters are cleared in far less.
const STUCK_CLOCKS: u64 = 2000;
/// Clocks without any beat after which all that was to leave has left: a host that seldom takes one is waited for.
const QUIET_CLOCKS: u64 = 1000;
/// Clocks in which an access to a register is answered.
const BUS_CLOCKS: usize = 64;
const OKAY: u8 = 0;

/// A core, whatever it does.
#[derive(Debug)]
pub(crate) struct Simulation {
    model: Model,
    /// Octets of a beat.
    octets: usize,
}

impl Simulation {
    /// The model of this number among those of `build.rs`, after reset.
    pub(crate) fn new(which: u32, octets: usize) -> Result<Self, TwinError> {
        let model = Model::new(which).ok_or(TwinError::NoCore)?;
        let mut simulation = Self { model, octets };
        simulation.reset();
        Ok(simulation)
    }

    /// Reset for some clocks.
    pub(crate) fn reset(&mut self) {
        for _ in 0..3 {
            self.model.clock(&Inputs { reset: true, ..Inputs::IDLE });
        }
    }

    /// Passes frames, back to back as far as `pressure` lets them, and says what became of each, in their order.
    pub(crate) fn run<E: CoreEvent>(
        &mut self,
        frames: &[Vec<u8>],
        mut pressure: Pressure,
    ) -> Result<(Vec<Outcome<E>>, Timing), TwinError> {
        if frames.iter().any(Vec::is_empty) {
            return Err(TwinError::Empty);
        }
        let mut run = Run::default();
        let mut giver = Giver::new(beats(frames, self.octets));
        let mut frame_starts = true;
        let (mut clock, mut moved, mut began) = (0, 0, None);
        while run.events.len() < frames.len() {
            if clock - moved > STUCK_CLOCKS {
                return Err(TwinError::Stuck(run.events.len(), frames.len()));
            }
            let inputs = giver.inputs(pressure.clock());
            let shown = self.model.clock(&inputs);
            run.watch(clock, &inputs, &shown)?;
            if giver.is_taken(&shown) {
                began.get_or_insert(clock);
                if frame_starts {
                    run.came.push(clock);
                }
                frame_starts = inputs.last;
                run.timing.beats_in += 1;
                moved = clock;
            } else {
                run.timing.waited += u64::from(inputs.valid);
            }
            if shown.event_valid != 0 || shown.out_valid != 0 || shown.host_valid != 0 {
                moved = clock;
            }
            clock += 1;
        }
        run.timing.clocks = clock - began.unwrap_or(0);
        // Nothing comes behind the last event.
        for _ in 0..8 {
            let shown = self.model.clock(&Inputs::IDLE);
            if shown.out_valid != 0 || shown.host_valid != 0 || shown.event_valid != 0 {
                return Err(TwinError::Contradiction("a beat behind the last frame".to_owned()));
            }
        }
        run.outcomes()
    }

    /// Passes frames of two ports at once, back to back as far as `pressure` lets them: what leaves by each port and to the host,
    /// with tuser of the last beat.
    pub(crate) fn run_ports(
        &mut self,
        frames: [&[Vec<u8>]; 2],
        mut pressure: Pressure,
    ) -> Result<[Vec<Marked>; 3], TwinError> {
        if frames.into_iter().flatten().any(Vec::is_empty) {
            return Err(TwinError::Empty);
        }
        let mut givers = frames.map(|frames| Giver::new(beats(frames, self.octets)));
        let mut takers = <[Taker; 3]>::default();
        let (mut clock, mut moved) = (0, 0);
        while clock - moved < QUIET_CLOCKS {
            let inputs = givers.each_mut().map(|giver| giver.inputs(pressure.clock()));
            let shown = self.model.clock_ports(&inputs);
            let watched = [
                ("m_n3_axis", out_beat(&shown[0]), inputs[0].out_ready),
                ("m_n6_axis", out_beat(&shown[1]), inputs[1].out_ready),
                ("host_axis", host_beat(&shown[0]), inputs[0].host_ready),
            ];
            for (taker, (name, beat, ready)) in takers.iter_mut().zip(watched) {
                taker.watch(clock, beat, ready).map_err(|fault| TwinError::Protocol(name, fault))?;
                if beat.is_some() && ready {
                    moved = clock;
                }
            }
            for (giver, shown) in givers.iter_mut().zip(&shown) {
                if giver.is_taken(shown) {
                    moved = clock;
                }
            }
            clock += 1;
        }
        let open: usize = takers.iter().map(|taker| taker.octets.len()).sum();
        if open > 0 || givers.iter().any(|giver| giver.next.is_some()) {
            return Err(TwinError::Contradiction(format!(
                "nothing moves, and {open} octets of frames have left"
            )));
        }
        Ok(takers.map(|taker| taker.frames.into_iter().map(|left| (left.octets, left.user)).collect()))
    }
}

impl Bus for Simulation {
    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        let mut inputs =
            Inputs { awaddr: address, wdata: value, awvalid: true, wvalid: true, ..Inputs::IDLE };
        for _ in 0..BUS_CLOCKS {
            let shown = self.model.clock(&inputs);
            inputs.awvalid &= shown.awready == 0;
            inputs.wvalid &= shown.wready == 0;
            if shown.bvalid != 0 {
                return if shown.bresp == OKAY { Ok(()) } else { Err(BusError::Refused(address)) };
            }
        }
        Err(BusError::NoAnswer(address))
    }

    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        let mut inputs = Inputs { araddr: address, arvalid: true, ..Inputs::IDLE };
        for _ in 0..BUS_CLOCKS {
            let shown = self.model.clock(&inputs);
            inputs.arvalid &= shown.arready == 0;
            if shown.rvalid != 0 {
                return if shown.rresp == OKAY { Ok(shown.rdata) } else { Err(BusError::Refused(address)) };
            }
        }
        Err(BusError::NoAnswer(address))
    }
}

/// A beat's octets, and whether it is the last of its frame.
type Part<'frames> = (&'frames [u8], bool);

/// The beats of frames, one after the other.
fn beats(frames: &[Vec<u8>], beat_len: usize) -> impl Iterator<Item = Part<'_>> {
    frames.iter().flat_map(move |frame| {
        let last = frame.len().div_ceil(beat_len) - 1;
        frame.chunks(beat_len).enumerate().map(move |(number, octets)| (octets, number == last))
    })
}

/// A stream that goes into the core.
struct Giver<'frames, Beats> {
    beats: Beats,
    /// The beat that is offered, or will be.
    next: Option<Part<'frames>>,
    is_offered: bool,
}

impl<'frames, Beats: Iterator<Item = Part<'frames>>> Giver<'frames, Beats> {
    fn new(mut beats: Beats) -> Self {
        Self { next: beats.next(), beats, is_offered: false }
    }

    /// What the core is given where these offer and are ready. What was offered stays until it is taken.
    fn inputs(&mut self, (offers, out_ready, host_ready): (bool, bool, bool)) -> Inputs {
        self.is_offered = self.next.is_some() && (self.is_offered || offers);
        let mut inputs = Inputs { valid: self.is_offered, out_ready, host_ready, ..Inputs::IDLE };
        if let (true, Some((octets, last))) = (self.is_offered, self.next) {
            inputs.data[..octets.len()].copy_from_slice(octets);
            inputs.keep = u64::MAX >> (64 - octets.len());
            inputs.last = last;
        }
        inputs
    }

    /// Whether what was offered is taken.
    fn is_taken(&mut self, shown: &Outputs) -> bool {
        let is_taken = self.is_offered && shown.ready != 0;
        if is_taken {
            (self.next, self.is_offered) = (self.beats.next(), false);
        }
        is_taken
    }
}

/// A frame that left.
#[derive(Debug)]
struct Left {
    octets: Vec<u8>,
    /// tuser of its last beat.
    user: u8,
    /// The clock of its first beat.
    clock: u64,
}

/// A stream that leaves the core.
#[derive(Debug, Default)]
struct Taker {
    frames: VecDeque<Left>,
    octets: Vec<u8>,
    began: Option<u64>,
    /// The beat that was shown and not taken.
    waits: Option<Beat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beat {
    data: [u8; BUS_MAX],
    keep: u64,
    last: bool,
    user: u8,
}

/// What is shown to the taker of what passes.
fn out_beat(shown: &Outputs) -> Option<Beat> {
    let beat =
        Beat { data: shown.out_data, keep: shown.out_keep, last: shown.out_last != 0, user: shown.out_user };
    (shown.out_valid != 0).then_some(beat)
}

/// What is shown to the host.
fn host_beat(shown: &Outputs) -> Option<Beat> {
    let beat = Beat {
        data: shown.host_data,
        keep: shown.host_keep,
        last: shown.host_last != 0,
        user: shown.host_user,
    };
    (shown.host_valid != 0).then_some(beat)
}

impl Taker {
    /// A clock in which `beat` is shown or nothing is.
    fn watch(&mut self, clock: u64, beat: Option<Beat>, ready: bool) -> Result<(), &'static str> {
        if let Some(waited) = self.waits
            && beat != Some(waited)
        {
            return Err("a beat that was not taken has changed");
        }
        self.waits = beat.filter(|_| !ready);
        let Some(beat) = beat.filter(|_| ready) else { return Ok(()) };
        if beat.keep == 0 || beat.keep & beat.keep.wrapping_add(1) != 0 {
            return Err("tkeep is not contiguous");
        }
        self.began.get_or_insert(clock);
        self.octets.extend(&beat.data[..beat.keep.count_ones() as usize]);
        if beat.last {
            let clock = self.began.take().unwrap_or(clock);
            self.frames.push_back(Left { octets: std::mem::take(&mut self.octets), user: beat.user, clock });
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Run {
    out: Taker,
    host: Taker,
    events: Vec<u8>,
    /// Clocks in which frames began.
    came: Vec<u64>,
    timing: Timing,
}

impl Run {
    fn watch(&mut self, clock: u64, inputs: &Inputs, shown: &Outputs) -> Result<(), TwinError> {
        let watched = [
            ("m_axis", self.out.watch(clock, out_beat(shown), inputs.out_ready)),
            ("host_axis", self.host.watch(clock, host_beat(shown), inputs.host_ready)),
        ];
        self.timing.beats_out += u64::from(shown.out_valid != 0 && inputs.out_ready);
        if shown.event_valid != 0 {
            self.events.push(shown.event_code);
        }
        match watched.into_iter().find_map(|(name, result)| Some((name, result.err()?))) {
            Some((name, fault)) => Err(TwinError::Protocol(name, fault)),
            None => Ok(()),
        }
    }

    /// Gives each frame what left of it.
    fn outcomes<E: CoreEvent>(mut self) -> Result<(Vec<Outcome<E>>, Timing), TwinError> {
        // Whose last beat is marked is dropped by who takes it.
        self.out.frames.retain(|frame| frame.user == 0);
        let mut outcomes = Vec::new();
        for (code, came) in std::mem::take(&mut self.events).into_iter().zip(&self.came) {
            let event =
                E::of(code).ok_or_else(|| TwinError::Contradiction(format!("there is no event {code}")))?;
            let left = match () {
                () if event.is_drop() => None,
                () if event.is_host() => Some(&mut self.host),
                () => Some(&mut self.out),
            };
            let left = match left.map(|taker| taker.frames.pop_front()) {
                Some(None) => {
                    let text = format!("{} was counted of a frame that did not leave", event.name());
                    return Err(TwinError::Contradiction(text));
                }
                left => left.flatten(),
            };
            if let Some(frame) = &left {
                self.timing.latencies.push(frame.clock - came);
            }
            let disposition = match left {
                None => Disposition::Dropped,
                Some(frame) if event.is_host() && frame.user == code => Disposition::Host(frame.octets),
                Some(frame) if event.is_host() => {
                    let text = format!("the host was told {} of what was {}", frame.user, event.name());
                    return Err(TwinError::Contradiction(text));
                }
                Some(frame) => Disposition::Out(frame.octets),
            };
            outcomes.push(Outcome { event, disposition });
        }
        let rest = self.out.frames.len() + self.host.frames.len();
        let open = self.out.octets.len() + self.host.octets.len();
        if rest + open > 0 {
            return Err(TwinError::Contradiction(format!("{rest} frames and {open} octets more have left")));
        }
        Ok((outcomes, self.timing))
    }
}
