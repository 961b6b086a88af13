use fairlift_core::model::{Asked, Ended};
use fairlift_core::{Extent, Flags, Instant, Op, Sector};
use fairlift_lab::Random;
use fairlift_lab::model::Spec;

fn streams(spec: &str, starts: &[u64], window: u64, secs: u64, lag: u64) -> f64 {
    let spec = Spec::parse(spec).unwrap();
    let mut model = spec.build(1);
    let mut next: Vec<u64> = starts.to_vec();
    let mut now = Instant::ZERO;
    let mut ended: Vec<Ended> = vec![];
    let mut asks: Vec<(u64, usize)> = (0..starts.len()).map(|s| (s as u64 * 1000, s)).collect();
    let mut bytes = 0;
    let end = secs * 1_000_000_000;
    loop {
        let ask = asks.iter().map(|a| a.0).min();
        let at = model.poll_event().map(|i| i.as_nanos()).into_iter().chain(ask).min().unwrap();
        if at > end {
            break;
        }
        now = Instant::from_nanos(at);
        ended.clear();
        model.advance(now, &mut ended);
        for e in &ended {
            bytes += window * 512;
            asks.push((at + lag, e.id as usize));
        }
        let due: Vec<_> = asks.iter().filter(|a| a.0 <= at).copied().collect();
        asks.retain(|a| a.0 > at);
        for (_, s) in due {
            model.submit(
                now,
                &Asked { id: s as u64, op: Op::Read, flags: Flags::NONE, extent: Extent::new(Sector(next[s]), window) },
            );
            next[s] += window;
        }
    }
    let _ = now;
    bytes as f64 / secs as f64 / 1e6
}

fn random(spec: &str, depth: usize, sectors: u64, span: u64, secs: u64) -> f64 {
    let spec = Spec::parse(spec).unwrap();
    let mut model = spec.build(1);
    let mut rnd = Random::new(7);
    let mut ended: Vec<Ended> = vec![];
    let mut ask = |model: &mut Box<dyn fairlift_core::model::Model>, now, id| {
        let at = rnd.below(span / sectors) * sectors;
        model.submit(now, &Asked { id, op: Op::Read, flags: Flags::NONE, extent: Extent::new(Sector(at), sectors) });
    };
    for id in 0..depth {
        ask(&mut model, Instant::ZERO, id as u64);
    }
    let mut n = 0;
    while let Some(at) = model.poll_event().filter(|at| at.as_nanos() < secs * 1_000_000_000) {
        ended.clear();
        model.advance(at, &mut ended);
        for e in &ended {
            n += 1;
            ask(&mut model, at, e.id);
        }
    }
    n as f64 / secs as f64
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let spec = args.get(1).map_or("sata-7200", |s| s.as_str());
    let parsed = Spec::parse(spec).unwrap();
    let sectors = parsed.size / 512;
    for lag in [0, 200_000] {
        print!("lag {lag}:");
        for n in [1u64, 2, 4, 8] {
            let starts: Vec<u64> = (0..n).map(|i| sectors / n * i / 8 * 8).collect();
            print!(" {n}: {:.1}", streams(spec, &starts, 256, 20, lag));
        }
        println!();
    }
    for n in [8u64, 16, 32, 64] {
        let starts: Vec<u64> = (0..n).map(|i| (1 << 20) * i).collect();
        print!(" close {n}: {:.1}", streams(spec, &starts, 256, 10, 0));
    }
    println!();
    for d in [1, 2, 4, 8, 16, 32] {
        print!(" rand4k d{d}: {:.1}", random(spec, d, 8, sectors, 30));
    }
    println!();
    for d in [1, 4, 32] {
        print!(" rand32k d{d} within 2 GiB: {:.1}", random(spec, d, 64, 4 << 20, 30));
    }
    println!();
}
