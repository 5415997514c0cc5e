//! The points of a call at which something may happen to it.

use crate::testbed::Testbed;
use std::fmt;
use testns::Random;
use testns::trace::Syscall;

/// A case's share of the points of a call; the cases run side by side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// The share's number, from 0.
    pub(crate) number: usize,
    pub(crate) of: usize,
    /// The greatest number of points that the share may have.
    pub(crate) limit: usize,
}

impl Share {
    /// Returns the share's points out of `count`, from 1 on: all of them, or as many as allowed, spread evenly from a
    /// random first one.
    pub(crate) fn points(self, count: usize, testbed: &Testbed, random: &mut Random) -> Vec<usize> {
        let limit = if testbed.every_point { usize::MAX } else { self.limit };
        self.limited(count, limit, random)
    }

    fn limited(self, count: usize, limit: usize, random: &mut Random) -> Vec<usize> {
        let all: Vec<_> = (1..=count).filter(|point| point % self.of == self.number).collect();
        if all.len() <= limit {
            return all;
        }
        let first = random.below(all.len());
        let mut chosen: Vec<_> = (0..limit).map(|n| (first + n * all.len() / limit) % all.len()).collect();
        chosen.sort_unstable();
        chosen.into_iter().filter_map(|index| all.get(index).copied()).collect()
    }
}

/// A point as a finding reports it.
pub(crate) struct At<'a> {
    pub(crate) what: &'a str,
    pub(crate) point: usize,
    pub(crate) hit: Option<&'a Syscall>,
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hit {
            Some(call) => write!(f, "{} {}: {}", self.what, self.point, call.name()),
            None => write!(f, "{} {}, which it did not come to", self.what, self.point),
        }
    }
}
