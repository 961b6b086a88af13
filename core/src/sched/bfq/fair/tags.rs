//! Virtual time: what a tag is, how service becomes one, and when an entity is due.
//!
//! Z1  A tag is a number of sectors per unit of weight, with [`SHIFT`] = 40 binary places, in 128 bits.
//! Z2  Precision: a place is 2⁻⁴⁰ sectors ÷ weight. At the largest weight (2²²) one sector is still 2¹⁸ places, so that a
//!     slot of 8 sectors is off by less than 1 part in 10⁶.
//! Z3  No overflow: tags start at 2⁹⁶. At 10 GB/s (2²⁴·³ sectors a second) and a weight sum of 1, virtual time gains 2⁶⁴·³
//!     places a second, so that 2¹²⁷ is reached after 2⁶² seconds. A slot, lead or lag is at most 2³² sectors ÷ weight,
//!     2⁷² places, and at most 2²² times as much where a weight changes: 2⁹⁴, so nothing comes near 0 either.
//! Z4  Rounding: an entity's tags are rounded up, virtual time is rounded down. So rounding never makes virtual time run
//!     ahead of what the entities were given, which would let lags grow for ever; that it falls behind, by a place or
//!     less a step, is made up whenever nobody is eligible (rule 9).

/// A point in virtual time; see the [module](self).
pub(super) type Tag = u128;

/// Binary places of a tag (Z1).
pub(super) const SHIFT: u32 = 40;

/// Where virtual time starts (Z3).
pub(super) const ORIGIN: Tag = 1 << 96;

/// The largest weight: 1,000, raised 3,000-fold, fits.
pub(super) const WEIGHT_MAX: u32 = 1 << 22;

/// `sectors` ÷ `weight`, rounded up: how far an entity's tags move (Z4).
#[inline]
pub(super) fn up(sectors: u64, weight: u32) -> Tag {
    // A division of 64 bits is several times cheaper, and nearly always enough.
    if sectors < 1 << 23 {
        Tag::from((sectors << SHIFT).div_ceil(u64::from(weight)))
    } else {
        (Tag::from(sectors) << SHIFT).div_ceil(Tag::from(weight))
    }
}

/// `sectors` ÷ `weight`, rounded down: how far virtual time moves (Z4).
#[inline]
pub(super) fn down(sectors: u64, weight: u64) -> Tag {
    if sectors < 1 << 24 {
        Tag::from((sectors << SHIFT) / weight)
    } else {
        (Tag::from(sectors) << SHIFT) / Tag::from(weight)
    }
}

/// The tag that is as many sectors from `now` by the weight `new` as `tag` is by the weight `old`.
pub(super) fn rescaled(tag: Tag, now: Tag, old: u32, new: u32) -> Tag {
    let (old, new) = (Tag::from(old), Tag::from(new));
    if tag >= now { now + ((tag - now) * old).div_ceil(new) } else { now - (now - tag) * old / new }
}

/// What an entity was promised before its budget became smaller; see rule 14 in [`super`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Promise {
    /// When the whole of the old budget is due; the promise is void once virtual time is there.
    pub(super) due: Tag,
    /// How much later than its start tag the entity counts as having started; zero if there is no promise.
    pub(super) late: Tag,
}

impl Promise {
    /// Rules 2 and 14: the finish tag of an entity with a slot of `length` (budget ÷ weight) to come, at virtual time
    /// `now`, which was due at `before` until now (zero: it did not wait).
    #[inline]
    pub(super) fn finish(&mut self, start: Tag, length: Tag, now: Tag, before: Tag) -> Tag {
        let finish = start + length;
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
