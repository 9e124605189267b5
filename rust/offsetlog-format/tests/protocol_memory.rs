//! What a frame of hostile bytes makes a reader of requests and responses allocate: no claim counts, only the bytes that are there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use offsetlog_format::cursor::Reader;
use offsetlog_format::error::Part;
use offsetlog_format::message::Message;
use offsetlog_format::protocol::apis;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const FRAME_BYTES: usize = 20_000;
/// Empty texts and arrays, nulls, and the end of a structure without tagged fields, in the orders that elements have.
const FILLERS: [&[u8]; 10] = [
    &[0],
    &[1],
    &[0xff],
    &[1, 0],
    &[1, 1, 0],
    &[1, 1, 1, 0],
    &[1, 1, 1, 1, 0],
    &[0, 0, 1],
    &[0, 0, 0, 0, 1, 0],
    &[0, 0, 1, 0],
];
/// Bytes of memory for a byte of a frame: `Message::read` promises a hundred.
const MOST: usize = 100;

/// What reading allocates at most, for each byte of the frame.
fn cost(message: &Message, version: i16, frame: &[u8]) -> usize {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let read = message.read(version, &mut Reader::new(frame, Part::Protocol));
    let peak = MEMORY.peak_usage() - before;
    drop(read);
    peak / frame.len()
}

/// Claims of many small elements at every place near the front, and such elements behind them.
#[test]
fn a_frame_costs_a_bounded_multiple_of_its_bytes() {
    let mut worst = (0, "", 0);
    for api in apis::ALL {
        for message in [&api.request, &api.response] {
            for version in [message.lowest_version, message.highest_version] {
                for filler in FILLERS {
                    for at in 0..24 {
                        // As many elements as there are bytes, nearly, in both encodings.
                        let claim: &[u8] = if message.is_flexible(version) {
                            &[0xff, 0x9b, 0x01]
                        } else {
                            &[0x00, 0x00, 0x4d, 0xff]
                        };
                        let filled = filler.iter().copied().cycle().take(FRAME_BYTES);
                        let head = (0..at).map(|place| u8::from(place % 8 == 7));
                        for frame in [
                            head.chain(claim.iter().copied())
                                .chain(filled.clone())
                                .collect::<Vec<u8>>(),
                            [&vec![0; at], claim, &filled.collect::<Vec<u8>>()].concat(),
                        ] {
                            let cost = cost(message, version, &frame);
                            worst = worst.max((cost, message.name, version));
                        }
                    }
                }
            }
        }
    }
    println!("worst: {worst:?}");
    assert!((20..=MOST).contains(&worst.0), "{worst:?}");
}
