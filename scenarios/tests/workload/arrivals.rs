//! Arrival traces: what is read, and what is refused with line, column and remedy.
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use kernel::money::Usage;
use proptest::prelude::*;
use scenarios::workload::arrivals::{self, Arrival, ArrivalError, Arrivals, MOST_TOKENS};
use std::path::Path;

const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";

fn read(text: &str) -> Result<Arrivals, ArrivalError> {
    Arrivals::read(text.as_bytes())
}

#[test]
fn crlf_without_a_last_line_end_is_read() {
    let text = format!("{HEADER}2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8");
    let arrivals = read(&text).expect("well formed");
    let usage = |input_tokens, output_tokens| Usage { input_tokens, output_tokens };
    let expect = [Arrival { at_ns: 0, usage: usage(4_808, 10) }, Arrival { at_ns: 52_000_000, usage: usage(3_180, 8) }];
    assert_eq!(arrivals.rows(), expect);
    assert_eq!(arrivals.hash(), *blake3::hash(text.as_bytes()).as_bytes());
}

#[test]
fn columns_go_by_name() {
    let text =
        "GeneratedTokens,Id,ContextTokens,TIMESTAMP\n8,x,3180,2024-02-29 23:59:59\n9,y,1,2024-03-01 00:00:00.5\n";
    let arrivals = read(text).expect("well formed");
    assert_eq!(arrivals.rows()[1].at_ns, 1_500_000_000);
    assert_eq!(arrivals.rows()[0].usage, Usage { input_tokens: 3_180, output_tokens: 8 });
}

#[test]
fn what_makes_no_sense_is_refused_with_line_column_and_remedy() {
    let after = |rows: &str| format!("{HEADER}{rows}");
    let good = "2023-11-16 18:17:03.9799600,4808,10\r\n";
    #[rustfmt::skip]
    let cases = [
        (String::new(), "line 1, column 1: the trace has no arrivals"),
        (after(""), "line 2, column 1: the trace has no arrivals"),
        ("TIMESTAMP,ContextTokens\n".into(), "line 1, column 1: the header has no column GeneratedTokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n".into(), "line 1, column 41: the header names ContextTokens twice"),
        (after(&format!("{good}2023-11-16 18:17:04,7")), "line 3, column 22: the row has 2 fields and the header 3"),
        (after(&format!("{good}2023-11-16 18:17:04,7,8,9\r\n")), "line 3, column 25: the row has 4 fields and the header 3"),
        (after("2023-11-16 18:17:04,-7,8"), "line 2, column 21: ContextTokens is \"-7\""),
        (after("2023-11-16 18:17:04,7,8.5"), "line 2, column 23: GeneratedTokens is \"8.5\""),
        (after("2023-11-16 18:17:04,,8"), "line 2, column 21: ContextTokens is \"\""),
        (after("2023-11-16 18:17:04,7,10000001"), "line 2, column 23: GeneratedTokens is \"10000001\""),
        (after("2023-11-16 18:17:04,99999999999999999999,8"), "line 2, column 21: ContextTokens is \"99999999999999999999\""),
        (after(&format!("{good}\r\n\r\n2023-11-16T18:17:04,7,8")), "line 5, column 1: TIMESTAMP is \"2023-11-16T18:17:04\""),
        (after("2023-02-29 18:17:04,7,8"), "line 2, column 1: TIMESTAMP is \"2023-02-29 18:17:04\": there is no such day"),
        (after("2023-13-01 18:17:04,7,8"), "there is no such day"),
        (after("2023-11-00 18:17:04,7,8"), "there is no such day"),
        (after("2023-11-16 24:00:00,7,8"), "there is no such time of day"),
        (after("2023-11-16 18:17:04.,7,8"), "its fraction is not a number"),
        (after("2023-11-16 18:17:04.1234567890,7,8"), "its fraction has more than nine digits"),
        (after("2023-11-16 18:17:04.009930+00:00,7,8"), "or a zone follows it"),
        (after(&format!("{good}2023-11-16 18:17:03.9799599,7,8")), "line 3, column 1: 2023-11-16 18:17:03.9799599 is before the row above"),
        (after(&format!("{good}2024-11-16 18:17:03,7,8")), "line 3, column 1: 2024-11-16 18:17:03 is more than 1000 h after"),
        ("\"TIMESTAMP\",\"ContextTokens\",\"GeneratedTokens\"\n\"2023-11-16 18:17:04\",\"7\",\"x\"\n".into(), "line 2, column 27: GeneratedTokens is \"x\""),
        (after("2023-11-16 18:17:04,\u{fffd}\u{fffd},8"), "line 2, column 21: ContextTokens"),
    ];
    for (text, expect) in cases {
        let error = read(&text).expect_err(&text).to_string();
        assert!(error.contains(expect), "{text:?}\n  gave   {error}\n  not    {expect}");
        assert!(error.contains(';'), "{error:?} says no remedy");
    }
}

#[test]
fn rows_are_dealt_over_the_agents_and_ten_make_a_run() {
    let rows: String = (0..57).map(|second| format!("2023-11-16 18:17:{second:02},{second},1\n")).collect();
    let list = arrivals::work(&read(&format!("{HEADER}{rows}")).expect("well formed"), 4, 2);
    assert!(list.open_loop);
    let lengths: Vec<Vec<usize>> =
        list.agents.iter().map(|items| items.iter().map(|item| item.units.len()).collect()).collect();
    assert_eq!(lengths, [vec![10, 5], vec![10, 4], vec![10, 4], vec![10, 4]]);
    let second = list.agents[1][0].units[1];
    assert_eq!((second.due_ns, second.usage.input_tokens, second.most), (5_000_000_000, 5, second.usage));
    assert_eq!(list.agents[3][0].user.0, 1);
}

/// The calendar, counted one day at a time.
fn days_by_counting(year: u64, month: u64, day: u64) -> u64 {
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let length = |year, month| match month {
        2 => 28 + u64::from(leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let years: u64 = (2000..year).map(|year| 365 + u64::from(leap(year))).sum();
    years + (1..month).map(|month| length(year, month)).sum::<u64>() + day - 1
}

proptest! {
    #[test]
    fn times_follow_the_calendar(
        year in 2000_u64..2100, month in 1_u64..=12, day in 1_u64..=28, second in 0_u64..86_400, step in 1_u64..35,
    ) {
        let (mut later_day, mut later_month, mut later_year) = (day + step, month, year);
        while later_day > 28 {
            (later_day, later_month) = (later_day - 28, later_month + 1);
        }
        if later_month > 12 {
            (later_month, later_year) = (later_month - 12, later_year + 1);
        }
        let time = format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60);
        let text = format!(
            "{HEADER}{year}-{month:02}-{day:02} {time},1,1\n{later_year}-{later_month:02}-{later_day:02} {time},1,1\n"
        );
        let days = days_by_counting(later_year, later_month, later_day) - days_by_counting(year, month, day);
        let arrivals = read(&text).expect("within 1000 h");
        prop_assert_eq!(arrivals.span_ns(), days * 86_400_000_000_000);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), headed in any::<bool>()) {
        let text = if headed { [HEADER.as_bytes(), &bytes].concat() } else { bytes };
        let _read_or_refused = Arrivals::read(text.as_slice());
    }

    #[test]
    fn a_broken_count_is_found_where_it_stands(before in 0_usize..20, count in (MOST_TOKENS + 1)..u64::MAX) {
        let good = "2023-11-16 18:17:03.9799600,4808,10\n".repeat(before);
        let error = read(&format!("{HEADER}{good}2023-11-16 18:17:03.9799600,{count},10\n")).expect_err("too many tokens");
        let ArrivalError::Count { line, column, .. } = error else { panic!("{error}") };
        prop_assert_eq!((line, column), (before as u64 + 2, 29));
    }
}

#[test]
fn the_real_trace_is_read_whole() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces/azure-llm-code-2023.csv");
    #[allow(clippy::disallowed_methods, reason = "a test reads its input from the machine's disk")]
    let Ok(file) = std::fs::File::open(&path) else {
        println!("SKIPPED: no trace at {}; this test needs the shared folder beside the project", path.display());
        return;
    };
    let trace = Arrivals::read(file).expect("well formed");
    assert_eq!(trace.rows().len(), 8_819);
    assert_eq!(trace.rows()[0].usage, Usage { input_tokens: 4_808, output_tokens: 10 });
    assert!((56 * 60..58 * 60).contains(&(trace.span_ns() / 1_000_000_000)));
}
