//! Virtual time: what a tag is, how service becomes one, and when an entity is due.
//!
//! vtags.1  A tag is a number of sectors per unit of weight, with [`SHIFT`] = 40 binary places, in 128 bits.
//! vtags.2  Precision: a place is 2⁻⁴⁰ sectors ÷ weight. At the largest weight (2²²) one sector is still 2¹⁸ places, so that a
//!     slot of 8 sectors is off by less than 1 part in 10⁶.
//! vtags.3  No overflow. Tags start at 2⁹⁶. At 10 GB/s, 2²⁴·³ sectors a second, and a weight sum of 1, virtual time gains 2⁶⁴·³
//!     places a second: 2¹²⁷ is 2⁶² seconds away. A slot is less than 2³² sectors, so a lead or lag is less than 2³⁴
//!     sectors, which is 2⁷⁴ places at the weight 1, to which any other may change: nothing comes near 0. Service outside
//!     of slots is at most 2⁴⁰ sectors at a time (a pebibyte is 2⁴¹), 2⁸⁰ places. The largest product, of the distance of
//!     two tags and a weight, is less than 2⁹⁶·2²².
//! vtags.4  Rounding: what a division leaves over is carried to the next, so tags and virtual time are what exact numbers would
//!     be, rounded down: a queue that is alone moves virtual time along with itself, to the place. The carry of virtual
//!     time is dropped when the weight sum changes, so that it is behind by less than a place, never ahead: lags cannot
//!     grow by rounding, and a lead that does is made up for whenever nobody is eligible (wfq.9).

/// A point in virtual time; see the [module](self).
pub(super) type Tag = u128;

/// Binary places of a tag (vtags.1). Chosen by the precision that vtags.2 works out; the kernel has 22, in 64 bits.
pub(super) const SHIFT: u32 = 40;

/// Where virtual time starts. Chosen by vtags.3: no lead or lag reaches from there to 0.
pub(super) const ORIGIN: Tag = 1 << 96;

/// The largest weight: 1,000, raised 3,000-fold, fits.
pub(super) const WEIGHT_MAX: u32 = 1 << 22;

/// `sectors` ÷ `weight`, rounded up: how long a slot is.
#[inline]
pub(super) fn length(sectors: u32, weight: u32) -> Tag {
    // A division of 64 bits is several times cheaper, and nearly always enough.
    if sectors < 1 << 23 {
        Tag::from((u64::from(sectors) << SHIFT).div_ceil(u64::from(weight)))
    } else {
        (Tag::from(sectors) << SHIFT).div_ceil(Tag::from(weight))
    }
}

/// `sectors` ÷ `weight`, and `carry` of an earlier division: how far service moves a tag or virtual time (vtags.4).
#[inline]
pub(super) fn moved(sectors: u64, weight: u64, carry: &mut u64) -> Tag {
    if sectors < 1 << 23 {
        let dividend = (sectors << SHIFT) + *carry;
        *carry = dividend % weight;
        Tag::from(dividend / weight)
    } else {
        moved_by(in_places(sectors), weight, carry)
    }
}

/// As [`moved`], by a number of places · weight.
pub(super) fn moved_by(places: Tag, weight: u64, carry: &mut u64) -> Tag {
    let (dividend, weight) = (places + Tag::from(*carry), Tag::from(weight));
    *carry = (dividend % weight) as u64;
    dividend / weight
}

/// How many places · weight that many sectors are.
pub(super) fn in_places(sectors: u64) -> Tag {
    Tag::from(sectors) << SHIFT
}

/// The tag that is as many sectors from `now` by the weight `new` as `tag` is by the weight `old`.
pub(super) fn rescaled(tag: Tag, now: Tag, old: u32, new: u32) -> Tag {
    let (old, new) = (Tag::from(old), Tag::from(new));
    if tag >= now { now + ((tag - now) * old).div_ceil(new) } else { now.saturating_sub((now - tag) * old / new) }
}

/// An entity's promise before its budget became smaller; see wfq.14 in [`super`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Promise {
    /// When the whole of the old budget is due; the promise is void once virtual time is there.
    pub(super) due: Tag,
    /// How much later than its start tag the entity counts as having started; zero if there is no promise.
    pub(super) late: Tag,
}

impl Promise {
    /// wfq.2 and wfq.14: the finish tag of an entity with a slot of `length` (budget ÷ weight) to come, at virtual time
    /// `now`, which was due at `before` until now (zero: it did not wait).
    #[inline]
    pub(super) fn finish(&mut self, start: Tag, length: Tag, now: Tag, before: Tag) -> Tag {
        let finish = start + length;
        if self.late == 0 && (finish >= before || start >= now) {
            return finish; // Most often: nothing was promised, nor is now.
        }
        self.keep(start, finish, now, before)
    }

    #[cold]
    fn keep(&mut self, start: Tag, finish: Tag, now: Tag, before: Tag) -> Tag {
        if now >= self.due {
            *self = Self::default();
        }
        if finish + self.late < before && start < now {
            self.late = self.late.max(now - start);
            self.due = self.due.max(before);
        }
        // `due` without `late` is void, and then this is `finish`.
        finish.max((finish + self.late).min(self.due))
    }
}
