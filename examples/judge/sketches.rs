//! Workloads from a description: what kinds of programs ask for, in the order in which they do. None is a recording; they are
//! here because they differ from the recorded ones.

use cushion::trace::Event;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What writes a workload down, and its name.
pub type Described = (&'static str, fn(&mut Sketch));

/// All of them.
pub const ALL: [Described; 14] = [
    ("generation", generation),
    ("serving", serving),
    ("language", language),
    ("images", images),
    ("detection", detection),
    ("experts", experts),
    ("late optimiser", late_optimiser),
    ("mesh", mesh),
    ("diffusion", diffusion),
    ("tables", tables),
    ("replay buffer", replay_buffer),
    ("validation", validation),
    ("beams", beams),
    ("drift", drift),
];

/// Events as they are written down.
pub struct Sketch {
    pub events: Vec<Event>,
    next: u64,
    random: Random,
}

/// Numbers that are the same in every run (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    /// In [0, 1).
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// As many of each magnitude.
    pub fn magnitude(&mut self, from: u64, to: u64) -> u64 {
        (from as f64 * (to as f64 / from as f64).powf(self.part())) as u64
    }
}

impl Sketch {
    pub fn new(seed: u64) -> Sketch {
        Sketch {
            events: Vec::new(),
            next: 0,
            random: Random(seed),
        }
    }

    fn get(&mut self, size_bytes: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.events.push(Event::alloc(id, size_bytes.max(1), 0));
        id
    }

    fn drop(&mut self, id: u64) {
        self.events.push(Event::free(id));
    }

    fn drop_all(&mut self, ids: impl IntoIterator<Item = u64>) {
        ids.into_iter().for_each(|id| self.drop(id));
    }

    /// Memory that is there for a moment.
    fn brief(&mut self, size_bytes: u64) {
        let id = self.get(size_bytes);
        self.drop(id);
    }

    fn one_of(&mut self, of: &[u64]) -> u64 {
        of[(self.random.next() % of.len() as u64) as usize]
    }

    fn weights(&mut self, layers: u64, sizes: &[u64]) {
        for _ in 0..layers {
            for &size_bytes in sizes {
                self.get(size_bytes);
            }
        }
    }
}

/// A decoder whose caches of keys and values are copied to grow.
fn generation(s: &mut Sketch) {
    let (layers, width, kv_width) = (24, 1536, 512);
    s.weights(
        layers,
        &[
            2 * width * width,
            2 * width * kv_width,
            8 * width * width,
            8 * width * width,
        ],
    );
    for _ in 0..10 {
        let (batch, prompt) = (s.one_of(&[1, 2, 6, 12, 24]), s.random.between(20, 1800));
        let mut cache = Vec::new();
        for _ in 0..layers {
            let hidden = s.get(2 * batch * prompt * width);
            let scores = s.get(2 * batch * prompt * width * 3);
            cache.push(s.get(2 * batch * prompt * kv_width));
            cache.push(s.get(2 * batch * prompt * kv_width));
            s.brief(2 * batch * prompt * width * 4);
            s.drop_all([scores, hidden]);
        }
        for token in 1..s.random.between(20, 90) {
            for part in cache.iter_mut() {
                let grown = s.get(2 * batch * (prompt + token) * kv_width);
                s.drop(std::mem::replace(part, grown));
                if s.random.next().is_multiple_of(2) {
                    s.brief(4 * batch * (prompt + token) * 16);
                }
                s.brief(2 * batch * width * 4);
            }
            s.brief(4 * batch * 50_000);
        }
        s.drop_all(cache);
    }
}

/// Many sequences that come and go, each with a buffer that doubles.
fn serving(s: &mut Sketch) {
    s.weights(32, &[25 * MIB, 9 * MIB, 67 * MIB]);
    let mut sequences: Vec<(u64, u64, u64)> = Vec::new();
    for _ in 0..4000 {
        if sequences.len() < 40 && s.random.next().is_multiple_of(12) {
            let size_bytes = s.random.magnitude(2 * MIB, 100 * MIB);
            let steps = s.random.between(20, 400);
            sequences.push((s.get(size_bytes), size_bytes, steps));
        }
        s.brief(sequences.len() as u64 * 300 * KIB + 1);
        let mut at = 0;
        while at < sequences.len() {
            sequences[at].2 -= 1;
            if sequences[at].2 == 0 {
                let (id, _, _) = sequences.swap_remove(at);
                s.drop(id);
            } else {
                at += 1;
            }
        }
        if !sequences.is_empty() && s.random.next().is_multiple_of(10) {
            let at = (s.random.next() % sequences.len() as u64) as usize;
            let (id, size_bytes, _) = sequences[at];
            let grown_bytes = size_bytes * 3 / 2;
            sequences[at].0 = s.get(grown_bytes);
            sequences[at].1 = grown_bytes;
            s.drop(id);
        }
    }
}

/// Training of a transformer on texts of many lengths.
fn language(s: &mut Sketch) {
    let (layers, width) = (18, 1280);
    let sizes = [
        12 * width * width,
        4 * width * width,
        16 * width * width,
        16 * width * width,
        4 * width,
    ];
    s.weights(layers, &sizes);
    s.get(4 * width * 32_000);
    let mut has_state = false;
    for _ in 0..30 {
        let length = s.random.between(100, 1500);
        let batch = (12_000 / length).max(1);
        let token_bytes = 2 * batch * length;
        let mut kept = Vec::new();
        for _ in 0..layers {
            for factor in [1, 3, 1, 4, 4, 1] {
                kept.push(s.get(token_bytes * width * factor));
                s.brief(token_bytes * width);
            }
            kept.push(s.get(4 * batch * length * 16));
        }
        let logits = s.get(2 * token_bytes * 32_000);
        s.brief(2 * token_bytes * 32_000);
        let mut gradients = Vec::new();
        let mut upper = s.get(token_bytes * width);
        for _ in 0..layers {
            for (at, &size_bytes) in sizes.iter().enumerate() {
                s.brief(token_bytes * width * (1 + at as u64 % 4));
                gradients.push(s.get(size_bytes));
            }
            let lower = s.get(token_bytes * width);
            s.drop(std::mem::replace(&mut upper, lower));
            for _ in 0..7 {
                kept.pop().into_iter().for_each(|id| s.drop(id));
            }
        }
        s.drop_all([upper, logits]);
        if !has_state {
            s.weights(2 * layers, &sizes);
            has_state = true;
        }
        for &size_bytes in &sizes {
            s.brief(size_bytes);
        }
        s.drop_all(gradients);
    }
}

/// Training on images of some sizes, with work space that is different for each layer.
fn images(s: &mut Sketch) {
    s.weights(40, &[600 * KIB, 2400 * KIB, 4 * KIB]);
    for _ in 0..25 {
        let (side, batch) = (
            s.one_of(&[128, 160, 224, 320, 384]),
            s.one_of(&[8, 16, 24, 32]),
        );
        let mut kept = vec![s.get(12 * batch * side * side)];
        for stage in 0..5u64 {
            let pixels = batch * (side >> (stage + 1)) * (side >> (stage + 1));
            for layer in 0..6 {
                kept.push(s.get(2 * pixels * (64 << stage)));
                if layer % 2 == 0 {
                    let work = s.random.magnitude(MIB, 200 * MIB);
                    s.brief(work);
                }
                kept.push(s.get(4 * (64 << stage)));
            }
        }
        while let Some(id) = kept.pop() {
            let work = s.random.magnitude(256 * KIB, 80 * MIB);
            s.brief(work);
            s.drop(id);
        }
    }
}

/// Each image has a size of its own, and some number of things in it.
fn detection(s: &mut Sketch) {
    s.weights(50, &[3 * MIB, 800 * KIB, 2 * KIB]);
    for _ in 0..40 {
        let (high, wide, batch) = (s.random.between(480, 1333), s.random.between(480, 1333), 4);
        let mut kept = Vec::new();
        for stage in 1..6u64 {
            for _ in 0..8 {
                kept.push(
                    s.get(4 * batch * (high >> stage) * (wide >> stage) * (32 << stage).min(512)),
                );
            }
        }
        let things = s.random.between(50, 2000);
        for _ in 0..6 {
            let boxes = s.random.between(1, things) * 16 * batch;
            kept.push(s.get(boxes));
            kept.push(s.get(things * 256 * 49 * 4));
            s.brief(things * things);
        }
        let at = kept.len() / 2;
        kept.swap(at, 3);
        s.drop_all(kept.into_iter().rev());
    }
}

/// A mixture of experts: each gets another share of the tokens in each layer.
fn experts(s: &mut Sketch) {
    let (layers, width, count) = (12, 1024, 8);
    s.weights(layers * count, &[8 * width * width, 8 * width * width]);
    s.weights(layers, &[8 * width * width]);
    for _ in 0..20 {
        let tokens = s.random.between(2000, 16_000);
        let mut kept = Vec::new();
        for _ in 0..layers {
            kept.push(s.get(2 * tokens * width));
            let sent = s.get(4 * tokens * width);
            let mut left = 2 * tokens;
            for expert in 0..count {
                let share = if expert + 1 == count {
                    left
                } else {
                    s.random.between(0, left / 2 + 1)
                };
                left -= share;
                kept.push(s.get(2 * share * width * 4 + 512));
                kept.push(s.get(2 * share * width + 512));
            }
            s.brief(4 * tokens * width);
            s.drop(sent);
        }
        for id in kept.into_iter().rev() {
            if s.random.next().is_multiple_of(3) {
                s.brief(2 * tokens * width);
            }
            s.drop(id);
        }
    }
}

/// Gradients are summed over some steps before the optimiser takes its memory.
fn late_optimiser(s: &mut Sketch) {
    let sizes: Vec<u64> = (0..120)
        .map(|_| s.random.magnitude(4 * KIB, 60 * MIB))
        .collect();
    sizes.iter().for_each(|&size_bytes| _ = s.get(size_bytes));
    let mut gradients: Vec<u64> = Vec::new();
    for step in 0..40 {
        let scale = s.random.between(2, 10);
        let mut kept: Vec<u64> = (0..80)
            .map(|layer| s.get(scale * (layer % 7 + 1) * 900 * KIB))
            .collect();
        for (at, &size_bytes) in sizes.iter().enumerate() {
            let fresh = s.get(size_bytes);
            if step % 4 == 0 {
                gradients.push(fresh);
            } else {
                s.drop(fresh);
            }
            if at % 3 == 0 {
                kept.pop().into_iter().for_each(|id| s.drop(id));
            }
        }
        s.drop_all(kept);
        if step == 11 {
            for &size_bytes in &sizes {
                s.get(size_bytes);
                s.get(size_bytes);
            }
        }
        if step % 4 == 3 {
            let flat_bytes = sizes.iter().sum::<u64>() / 4;
            s.brief(flat_bytes);
            s.drop_all(std::mem::take(&mut gradients));
        }
    }
}

/// Fields on a mesh that is refined at times, and arrays for each step of time.
fn mesh(s: &mut Sketch) {
    let mut patches: Vec<u64> = (0..60).map(|_| s.random.magnitude(MIB, 80 * MIB)).collect();
    let mut fields: Vec<Vec<u64>> = Vec::new();
    for &size_bytes in &patches {
        let of_patch = (0..5).map(|_| s.get(size_bytes)).collect();
        fields.push(of_patch);
    }
    for step in 0..200 {
        for &size_bytes in &patches.clone() {
            let (first, second) = (s.get(size_bytes), s.get(size_bytes / 8 + 1));
            s.brief(size_bytes * 2);
            s.drop_all([first, second]);
        }
        if step % 10 == 9 {
            for _ in 0..12 {
                let at = (s.random.next() % patches.len() as u64) as usize;
                patches[at] = s.random.magnitude(MIB, 80 * MIB);
                let grown: Vec<u64> = (0..5).map(|_| s.get(patches[at])).collect();
                s.drop_all(std::mem::replace(&mut fields[at], grown));
            }
        }
    }
}

/// Pictures on demand: a text encoder, many steps of one network, a decoder with a high peak.
fn diffusion(s: &mut Sketch) {
    s.weights(60, &[12 * MIB, 3 * MIB, 26 * MIB]);
    for _ in 0..12 {
        let (high, wide) = (s.random.between(64, 160), s.random.between(64, 160));
        let batch = s.one_of(&[1, 2, 4]);
        let latent = s.get(8 * batch * high * wide);
        let text = s.get(batch * 77 * 4096);
        for _ in 0..15 {
            let mut skipped = Vec::new();
            for stage in 0..4u64 {
                for _ in 0..3 {
                    let size_bytes =
                        2 * batch * (high >> stage) * (wide >> stage) * (320 << stage.min(2));
                    s.brief(size_bytes * 2);
                    skipped.push(s.get(size_bytes));
                    let pixels = (high >> stage) * (wide >> stage);
                    s.brief((batch * 8 * pixels * pixels / 16).min(400 * MIB));
                }
            }
            while let Some(id) = skipped.pop() {
                let joined = s.get(batch * high * wide * 640);
                s.drop(id);
                s.drop(joined);
            }
        }
        let mut below = s.get(2 * batch * high * wide * 512);
        for stage in 1..4u64 {
            let above = s.get(2 * batch * (high << stage) * (wide << stage) * (512 >> stage));
            s.brief(2 * batch * (high << stage) * (wide << stage) * (256 >> stage));
            s.drop(std::mem::replace(&mut below, above));
        }
        s.drop_all([below, latent, text]);
    }
}

/// Columns of tables of any length; filters, joins, sorts.
fn tables(s: &mut Sketch) {
    let mut held: Vec<Vec<u64>> = Vec::new();
    for _ in 0..250 {
        let (rows, columns) = (
            s.random.magnitude(20_000, 30_000_000),
            s.random.between(1, 8),
        );
        let wide = s.one_of(&[4, 8, 8, 16]);
        let table: Vec<u64> = (0..columns).map(|_| s.get(rows * wide)).collect();
        let order = s.get(rows * 4);
        s.brief(rows * 8);
        let kept_rows = (rows as f64 * s.random.part()) as u64;
        let result: Vec<u64> = (0..columns).map(|_| s.get(kept_rows * wide)).collect();
        s.drop(order);
        s.drop_all(table);
        held.push(result);
        if held.len() > 12 {
            let at = (s.random.next() % held.len() as u64) as usize;
            let old = held.swap_remove(at);
            s.drop_all(old);
        }
    }
}

/// Reinforcement learning: memory that fills up slowly between steps that are all alike.
fn replay_buffer(s: &mut Sketch) {
    s.weights(20, &[4 * MIB, 4 * MIB, 16 * KIB]);
    let mut held = std::collections::VecDeque::new();
    for step in 0..600u64 {
        let length = s.random.between(50, 1000);
        held.push_back((
            s.get(length * 28_224),
            s.get(length * 64),
            s.get(length * 4),
        ));
        if held.len() > 150 {
            if let Some((first, second, third)) = held.pop_front() {
                s.drop_all([first, second, third]);
            }
        }
        if step % 3 == 0 {
            let kept: Vec<u64> = (1..12).map(|layer| s.get(layer * 3 * MIB)).collect();
            s.brief(40 * MIB);
            s.drop_all(kept);
        }
    }
}

/// Training with a look at other data now and then, in larger batches.
fn validation(s: &mut Sketch) {
    s.weights(36, &[7 * MIB, 7 * MIB, 28 * MIB]);
    s.weights(36, &[7 * MIB, 7 * MIB, 28 * MIB]);
    for step in 0..40 {
        let is_training = step % 8 < 6;
        let length = s.random.between(200, 900);
        let unit = if is_training {
            24 * length * KIB
        } else {
            100 * length * KIB
        };
        let mut kept = Vec::new();
        for layer in 0..36 {
            let ids = [s.get(unit), s.get(unit / 2), s.get(unit / 5)];
            s.brief(unit * 3 / 2);
            if is_training && layer % 4 != 3 {
                kept.extend(ids);
            } else {
                s.drop_all(ids);
            }
        }
        if is_training {
            for id in kept.into_iter().rev() {
                s.brief(unit / 3);
                s.drop(id);
            }
        } else {
            let found: Vec<u64> = (0..10).map(|_| s.get(unit / 10)).collect();
            s.brief(unit * 2);
            s.drop_all(found);
        }
    }
}

/// Beam search: all caches are copied in a new order, and end at different times.
fn beams(s: &mut Sketch) {
    s.weights(12, &[16 * MIB, 16 * MIB, 2 * MIB]);
    for _ in 0..8 {
        let mut width = s.random.between(4, 40);
        let mut caches: Vec<u64> = (0..24).map(|_| s.get(width * 64 * KIB)).collect();
        for step in 1..120u64 {
            if width > 1 && s.random.next().is_multiple_of(14) {
                width -= 1;
            }
            for cache in caches.iter_mut() {
                let grown = s.get(width * (64 + 4 * step) * KIB);
                s.drop(std::mem::replace(cache, grown));
            }
            if step % 4 == 0 {
                let again: Vec<u64> = caches
                    .iter()
                    .map(|_| s.get(width * (64 + 4 * step) * KIB))
                    .collect();
                s.drop_all(std::mem::replace(&mut caches, again));
            }
            s.brief(width * 200 * KIB);
        }
        s.drop_all(caches);
    }
}

/// A long run of any sizes, that change slowly, and lives from short to long.
fn drift(s: &mut Sketch) {
    let mut live: std::collections::BTreeMap<u64, Vec<u64>> = std::collections::BTreeMap::new();
    for step in 0..30_000u64 {
        let middle = 24.0 * (1.0 + 0.7 * (step as f64 / 4000.0).sin());
        let size_bytes = (s.random.magnitude(32 * KIB, 4 * MIB) as f64 * middle) as u64 / 8;
        let id = s.get(size_bytes);
        let life = s.random.magnitude(1, 1500);
        live.entry(step + life).or_default().push(id);
        while let Some(entry) = live.first_entry().filter(|entry| *entry.key() <= step) {
            let ended = entry.remove();
            s.drop_all(ended);
        }
    }
}
