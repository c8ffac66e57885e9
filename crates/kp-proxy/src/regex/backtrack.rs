//! The engine for look-around, references, possessive and atomic groups: backtracking, as PCRE, but every byte looked
//! at counts, so that no pattern and no subject takes longer than [`STEPS_MAX`] allows.
//!
//! A pattern becomes a list of instructions. What may be tried otherwise lies on a stack together with the group
//! positions to put back; look-around and atomic groups run on the same stack and drop their alternatives at their end.

use super::syntax::{Assert, ByteSet, Kind, Node, Parsed};
use super::{Group, Limit};

/// Steps of one search: an instruction, a stack entry undone, or a few bytes of a run. Measured at 3 to 6 ns
/// each in release builds whatever the pattern, so that a search ends within 5 ms.
const STEPS_MAX: u32 = 800_000;
/// Bytes of a run (`[a-z]*`, `.*`) that count as one step.
const RUN_PER_STEP: usize = 4;
/// Instructions of one pattern; counted repetitions are written out.
const SIZE_MAX: usize = 20_000;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Backtracking {
    code: Vec<Instruction>,
    /// Two per group, then one per loop that could spin without progress.
    slots: usize,
    groups: usize,
    names: Vec<(String, usize)>,
    /// Begins with `^`: only the start is tried.
    anchored: bool,
}

#[derive(Debug)]
enum Instruction {
    Set(Box<ByteSet>),
    /// A repetition of one byte.
    Run {
        set: Box<ByteSet>,
        min: usize,
        max: usize,
        kind: Kind,
    },
    /// Go to the first, later perhaps to the second.
    Split(usize, usize),
    Jump(usize),
    Save(usize),
    /// The end of a loop's body: again, unless it matched nothing.
    Again {
        slot: usize,
        start: usize,
    },
    Assert(Assert),
    Backreference {
        group: usize,
        ignore_case: bool,
    },
    /// The body follows and ends with `Accept`; then on at `end`. `behind`: how far back it begins.
    Look {
        behind: usize,
        negative: bool,
        end: usize,
    },
    Atomic {
        end: usize,
    },
    Accept,
    Fail,
}

impl Backtracking {
    pub(super) fn new(parsed: Parsed) -> Result<Self, String> {
        let mut compiler = Compiler {
            code: Vec::new(),
            slots: parsed.groups * 2,
        };
        compiler.node(&parsed.node)?;
        compiler.emit(Instruction::Accept)?;
        let anchored = matches!(
            compiler.code.first(),
            Some(Instruction::Assert(Assert::Start))
        );
        Ok(Self {
            code: compiler.code,
            slots: compiler.slots,
            groups: parsed.groups,
            names: parsed.names,
            anchored,
        })
    }

    /// Number of a named group.
    pub(super) fn group(&self, name: &str) -> Option<usize> {
        self.names
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, group)| *group)
    }

    /// Searches; on a match writes the groups if they are wanted.
    pub(super) fn search(
        &self,
        subject: &[u8],
        groups: Option<&mut Vec<Group>>,
    ) -> Result<bool, Limit> {
        let mut search = Search {
            code: &self.code,
            subject,
            slots: vec![None; self.slots],
            stack: Vec::new(),
            steps: STEPS_MAX,
        };
        let last = if self.anchored { 0 } else { subject.len() };
        for start in 0..=last {
            search.spend(1)?;
            let Some(end) = search.run(0, start)? else {
                continue;
            };
            if let Some(groups) = groups {
                groups.clear();
                groups.push(span(Some(start), Some(end)));
                groups.extend(
                    search
                        .slots
                        .chunks_exact(2)
                        .take(self.groups)
                        .skip(1)
                        .map(|pair| match pair {
                            [start, end] => span(*start, *end),
                            _ => None,
                        }),
                );
            }
            return Ok(true);
        }
        Ok(false)
    }
}

fn span(start: Option<usize>, end: Option<usize>) -> Group {
    Some((u32::try_from(start?).ok()?, u32::try_from(end?).ok()?))
}

/// What to do when the way taken fails.
enum Choice {
    /// Try there.
    Branch { at: usize, position: usize },
    /// Give back one byte of a run, down to `low`.
    Shorter { at: usize, low: usize, high: usize },
    /// Take one more byte of the run before `at`, up to `left` more.
    Longer {
        at: usize,
        position: usize,
        left: usize,
    },
    /// Put a slot back.
    Restore { slot: usize, old: Option<usize> },
}

struct Search<'a> {
    code: &'a [Instruction],
    subject: &'a [u8],
    slots: Vec<Option<usize>>,
    stack: Vec<Choice>,
    steps: u32,
}

impl Search<'_> {
    fn spend(&mut self, steps: usize) -> Result<(), Limit> {
        let steps = u32::try_from(steps).map_err(|_| Limit)?;
        self.steps = self.steps.checked_sub(steps).ok_or(Limit)?;
        Ok(())
    }

    /// Runs from an instruction to its `Accept`; on a match says where it ends and leaves its choices on the stack.
    fn run(&mut self, mut at: usize, mut position: usize) -> Result<Option<usize>, Limit> {
        let base = self.stack.len();
        loop {
            self.spend(1)?;
            let next = match self.code.get(at) {
                Some(Instruction::Accept) => return Ok(Some(position)),
                Some(instruction) => self.step(instruction, at, position)?,
                None => None,
            };
            match next.map_or_else(|| self.back(base), |next| Ok(Some(next)))? {
                Some(next) => (at, position) = next,
                None => return Ok(None),
            }
        }
    }

    /// One instruction: where to go on, or nothing if it does not match here.
    fn step(
        &mut self,
        instruction: &Instruction,
        at: usize,
        position: usize,
    ) -> Result<Option<(usize, usize)>, Limit> {
        let next = at + 1;
        Ok(match instruction {
            Instruction::Set(set) => self
                .subject
                .get(position)
                .is_some_and(|byte| set.contains(*byte))
                .then_some((next, position + 1)),
            Instruction::Run {
                set,
                min,
                max,
                kind,
            } => {
                return self.take_run(set, (*min, *max), *kind, next, position);
            }
            Instruction::Split(first, second) => {
                self.stack.push(Choice::Branch {
                    at: *second,
                    position,
                });
                Some((*first, position))
            }
            Instruction::Jump(to) => Some((*to, position)),
            Instruction::Save(slot) => {
                self.save(*slot, position);
                Some((next, position))
            }
            Instruction::Again { slot, start } => {
                let progress = self.slots.get(*slot).copied().flatten() != Some(position);
                Some((if progress { *start } else { next }, position))
            }
            Instruction::Assert(assert) => {
                self.holds(*assert, position).then_some((next, position))
            }
            Instruction::Backreference { group, ignore_case } => {
                return self.referenced(*group, *ignore_case, next, position);
            }
            Instruction::Look {
                behind,
                negative,
                end,
            } => {
                return self.look(*behind, *negative, (next, *end), position);
            }
            Instruction::Atomic { end } => {
                let base = self.stack.len();
                match self.run(next, position)? {
                    Some(position) => {
                        self.commit(base)?;
                        Some((*end, position))
                    }
                    None => None,
                }
            }
            Instruction::Accept | Instruction::Fail => None,
        })
    }

    fn save(&mut self, slot: usize, position: usize) {
        if let Some(value) = self.slots.get_mut(slot) {
            self.stack.push(Choice::Restore { slot, old: *value });
            *value = Some(position);
        }
    }

    /// Undoes until there is something else to try, not below `base`.
    fn back(&mut self, base: usize) -> Result<Option<(usize, usize)>, Limit> {
        while self.stack.len() > base {
            self.spend(1)?;
            match self.stack.pop() {
                Some(Choice::Branch { at, position }) => return Ok(Some((at, position))),
                Some(Choice::Shorter { at, low, high }) => {
                    let high = high.saturating_sub(1);
                    if high > low {
                        self.stack.push(Choice::Shorter { at, low, high });
                    }
                    return Ok(Some((at, high)));
                }
                Some(Choice::Longer { at, position, left }) => {
                    let Some(Instruction::Run { set, .. }) = self.code.get(at.wrapping_sub(1))
                    else {
                        continue;
                    };
                    if self
                        .subject
                        .get(position)
                        .is_some_and(|byte| set.contains(*byte))
                    {
                        if left > 1 {
                            self.stack.push(Choice::Longer {
                                at,
                                position: position + 1,
                                left: left - 1,
                            });
                        }
                        return Ok(Some((at, position + 1)));
                    }
                }
                Some(Choice::Restore { slot, old }) => {
                    if let Some(value) = self.slots.get_mut(slot) {
                        *value = old;
                    }
                }
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Drops the choices above `base`, but keeps what puts groups back if something before fails.
    fn commit(&mut self, base: usize) -> Result<(), Limit> {
        self.spend(self.stack.len().saturating_sub(base))?;
        let mut kept = base;
        for index in base..self.stack.len() {
            if matches!(self.stack.get(index), Some(Choice::Restore { .. })) {
                self.stack.swap(kept, index);
                kept += 1;
            }
        }
        self.stack.truncate(kept);
        Ok(())
    }

    fn take_run(
        &mut self,
        set: &ByteSet,
        (min, max): (usize, usize),
        kind: Kind,
        next: usize,
        position: usize,
    ) -> Result<Option<(usize, usize)>, Limit> {
        let wanted = if kind == Kind::Lazy { min } else { max };
        let rest = self.subject.get(position..).unwrap_or_default();
        let length = rest
            .iter()
            .take(wanted)
            .take_while(|byte| set.contains(**byte))
            .count();
        self.spend(length / RUN_PER_STEP)?;
        if length < min {
            return Ok(None);
        }
        match kind {
            Kind::Greedy if length > min => self.stack.push(Choice::Shorter {
                at: next,
                low: position + min,
                high: position + length,
            }),
            Kind::Lazy if max > min => self.stack.push(Choice::Longer {
                at: next,
                position: position + length,
                left: max - min,
            }),
            _ => {}
        }
        Ok(Some((next, position + length)))
    }

    fn holds(&self, assert: Assert, position: usize) -> bool {
        let before = position
            .checked_sub(1)
            .and_then(|before| self.subject.get(before));
        let after = self.subject.get(position);
        let word = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        match assert {
            Assert::Start => before.is_none(),
            Assert::End => after.is_none(),
            Assert::LineStart => before.is_none_or(|byte| *byte == b'\n'),
            Assert::LineEnd => after.is_none_or(|byte| *byte == b'\n'),
            Assert::WordBoundary => word(before) != word(after),
            Assert::NotWordBoundary => word(before) == word(after),
        }
    }

    /// As PCRE, a group that took no part matches nowhere.
    fn referenced(
        &mut self,
        group: usize,
        ignore_case: bool,
        next: usize,
        position: usize,
    ) -> Result<Option<(usize, usize)>, Limit> {
        let slot = |slot: usize| self.slots.get(slot).copied().flatten();
        let Some((start, end)) = slot(group * 2).zip(slot(group * 2 + 1)) else {
            return Ok(None);
        };
        let wanted = self.subject.get(start..end).unwrap_or_default();
        let found = self.subject.get(position..position + wanted.len());
        let same = found.is_some_and(|found| {
            if ignore_case {
                found.eq_ignore_ascii_case(wanted)
            } else {
                found == wanted
            }
        });
        let length = wanted.len();
        self.spend(length / RUN_PER_STEP)?;
        Ok(same.then_some((next, position + length)))
    }

    fn look(
        &mut self,
        behind: usize,
        negative: bool,
        (body, end): (usize, usize),
        position: usize,
    ) -> Result<Option<(usize, usize)>, Limit> {
        let base = self.stack.len();
        let found = match position.checked_sub(behind) {
            Some(start) => self.run(body, start)?.is_some(),
            None => false,
        };
        if !negative {
            self.commit(base)?;
        } else if found {
            self.commit(base)?;
            self.back(base)?;
        }
        Ok((found != negative).then_some((end, position)))
    }
}

struct Compiler {
    code: Vec<Instruction>,
    slots: usize,
}

impl Compiler {
    fn emit(&mut self, instruction: Instruction) -> Result<usize, String> {
        if self.code.len() >= SIZE_MAX {
            return Err(String::from("it is too large when compiled"));
        }
        self.code.push(instruction);
        Ok(self.code.len() - 1)
    }

    /// Fills in an instruction that had to know what comes after it.
    fn patch(&mut self, at: usize, instruction: Instruction) {
        if let Some(place) = self.code.get_mut(at) {
            *place = instruction;
        }
    }

    fn node(&mut self, node: &Node) -> Result<(), String> {
        match node {
            Node::Set(set) => self.emit(Instruction::Set(Box::new(*set))).map(drop),
            Node::Concat(nodes) => nodes.iter().try_for_each(|node| self.node(node)),
            Node::Alternate(nodes) => self.alternate(nodes),
            Node::Group(group, node) => {
                self.emit(Instruction::Save(group * 2))?;
                self.node(node)?;
                self.emit(Instruction::Save(group * 2 + 1)).map(drop)
            }
            Node::Repeat {
                node,
                min,
                max,
                kind,
            } => self.repeat(node, *min, *max, *kind),
            Node::Look {
                node,
                behind: false,
                negative,
            } => self.look(node, 0, *negative),
            Node::Look {
                node,
                behind: true,
                negative,
            } => self.look_behind(node, *negative),
            Node::Atomic(node) => {
                let start = self.emit(Instruction::Fail)?;
                self.node(node)?;
                let end = self.emit(Instruction::Accept)? + 1;
                self.patch(start, Instruction::Atomic { end });
                Ok(())
            }
            Node::Assert(assert) => self.emit(Instruction::Assert(*assert)).map(drop),
            Node::Backreference { group, ignore_case } => self
                .emit(Instruction::Backreference {
                    group: *group,
                    ignore_case: *ignore_case,
                })
                .map(drop),
        }
    }

    fn alternate(&mut self, nodes: &[Node]) -> Result<(), String> {
        let mut ends = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            if index + 1 == nodes.len() {
                self.node(node)?;
                break;
            }
            let split = self.emit(Instruction::Fail)?;
            self.node(node)?;
            ends.push(self.emit(Instruction::Fail)?);
            self.patch(split, Instruction::Split(split + 1, self.code.len()));
        }
        let end = self.code.len();
        ends.into_iter()
            .for_each(|at| self.patch(at, Instruction::Jump(end)));
        Ok(())
    }

    fn repeat(
        &mut self,
        node: &Node,
        min: u32,
        max: Option<u32>,
        kind: Kind,
    ) -> Result<(), String> {
        if let Node::Set(set) = node {
            let max = max.map_or(usize::MAX, |max| max as usize);
            let run = Instruction::Run {
                set: Box::new(*set),
                min: min as usize,
                max,
                kind,
            };
            return self.emit(run).map(drop);
        }
        if kind == Kind::Possessive {
            let greedy = Node::Repeat {
                node: Box::new(node.clone()),
                min,
                max,
                kind: Kind::Greedy,
            };
            return self.node(&Node::Atomic(Box::new(greedy)));
        }
        for _ in 0..min {
            self.node(node)?;
        }
        match max {
            None => self.star(node, kind),
            Some(max) => {
                let mut splits = Vec::new();
                for _ in min..max {
                    splits.push(self.emit(Instruction::Fail)?);
                    self.node(node)?;
                }
                let end = self.code.len();
                for split in splits {
                    self.patch(split, choice(kind, split + 1, end));
                }
                Ok(())
            }
        }
    }

    fn star(&mut self, node: &Node, kind: Kind) -> Result<(), String> {
        let slot = self.slots;
        self.slots += 1;
        let start = self.emit(Instruction::Fail)?;
        self.emit(Instruction::Save(slot))?;
        self.node(node)?;
        let end = self.emit(Instruction::Again { slot, start })? + 1;
        self.patch(start, choice(kind, start + 1, end));
        Ok(())
    }

    fn look(&mut self, node: &Node, behind: usize, negative: bool) -> Result<(), String> {
        let start = self.emit(Instruction::Fail)?;
        self.node(node)?;
        let end = self.emit(Instruction::Accept)? + 1;
        self.patch(
            start,
            Instruction::Look {
                behind,
                negative,
                end,
            },
        );
        Ok(())
    }

    /// As PCRE, each alternative of a look-behind has one length, but they may differ.
    fn look_behind(&mut self, node: &Node, negative: bool) -> Result<(), String> {
        let alternatives = match node {
            Node::Alternate(nodes) => nodes.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut lengths = Vec::with_capacity(alternatives.len());
        for node in alternatives {
            lengths.push(length(node).ok_or("look-behind without a fixed length")?);
        }
        if negative {
            // None of them may match: one after the other.
            return alternatives
                .iter()
                .zip(lengths)
                .try_for_each(|(node, length)| self.look(node, length, true));
        }
        let mut ends = Vec::with_capacity(alternatives.len());
        for (node, length) in alternatives.iter().zip(lengths) {
            let split = self.emit(Instruction::Fail)?;
            self.look(node, length, false)?;
            ends.push(self.emit(Instruction::Fail)?);
            self.patch(split, Instruction::Split(split + 1, self.code.len()));
        }
        self.emit(Instruction::Fail)?;
        let end = self.code.len();
        ends.into_iter()
            .for_each(|at| self.patch(at, Instruction::Jump(end)));
        Ok(())
    }
}

fn choice(kind: Kind, body: usize, end: usize) -> Instruction {
    match kind {
        Kind::Lazy => Instruction::Split(end, body),
        Kind::Greedy | Kind::Possessive => Instruction::Split(body, end),
    }
}

/// How many bytes a part always takes, if it always takes the same.
fn length(node: &Node) -> Option<usize> {
    match node {
        Node::Set(_) => Some(1),
        Node::Concat(nodes) => nodes.iter().map(length).sum(),
        Node::Alternate(nodes) => {
            let first = length(nodes.first()?)?;
            nodes
                .iter()
                .all(|node| length(node) == Some(first))
                .then_some(first)
        }
        Node::Group(_, node) | Node::Atomic(node) => length(node),
        Node::Repeat { node, min, max, .. } => {
            (Some(*min) == *max).then(|| length(node)?.checked_mul(*min as usize))?
        }
        Node::Look { .. } | Node::Assert(_) => Some(0),
        Node::Backreference { .. } => None,
    }
}
