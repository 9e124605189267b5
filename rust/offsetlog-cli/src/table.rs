//! Columns of text, aligned.

use crate::console::Console;
use std::io::{self, Write};

/// How a column is aligned: names left, numbers right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A longer name stands out of its column instead of widening it for all: topic names may have 249 characters.
const WIDEST: usize = 48;

/// Rows that become aligned columns when all are known.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells are safe to print.
    pub(crate) fn push<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.into());
    }

    /// Writes a title line and the rows; nothing if there are none.
    pub(crate) fn write(&self, console: &mut Console<'_>) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let titles: Vec<String> = self
            .columns
            .iter()
            .map(|(title, _)| (*title).to_owned())
            .collect();
        let mut widths: Vec<usize> = titles.iter().map(String::len).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                let length = cell.chars().count();
                if length <= WIDEST {
                    *width = (*width).max(length);
                }
            }
        }
        let title = self.line(&titles, &widths);
        if console.colour_out {
            writeln!(console.out, "\x1b[1m{title}\x1b[0m")?;
        } else {
            writeln!(console.out, "{title}")?;
        }
        for row in &self.rows {
            writeln!(console.out, "{}", self.line(row, &widths))?;
        }
        Ok(())
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            match align {
                Align::Left => line.extend([cell.as_str(), padding.as_str()]),
                Align::Right => line.extend([padding.as_str(), cell.as_str()]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// A value, or a dash for none.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A number of bytes for people, 1024-based: `512`, `1.2K`, `34M`, `5.6G`.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = ' ';
    for next in UNITS {
        tenths = tenths.div_ceil(1024); // as ls and du do: never less than there is
        unit = next;
        if tenths.div_ceil(10) < 1024 {
            break;
        }
    }
    if tenths < 100 {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    } else {
        format!("{}{unit}", tenths.div_ceil(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_one_long_name_does_not_widen_them() {
        let mut table = Table::new(&[("TOPIC", Align::Left), ("N", Align::Right)]);
        table.push(["a".into(), "100".into()]);
        table.push(["orders".into(), "7".into()]);
        table.push(["x".repeat(60), "8".into()]);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console =
            Console::new(&mut out, &mut err, false, false, crate::Terminal::default());
        table.write(&mut console).unwrap();
        drop(console);
        let long = "x".repeat(60);
        let expected = format!("TOPIC     N\na       100\norders    7\n{long}    8\n");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// The figures are those of `ls -lh` for files of these sizes.
    #[test]
    fn sizes_for_people_are_those_of_ls() {
        let cases = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1_048_576, "1.0M"),
            (1_048_577, "1.1M"),
            (307_217, "301K"),
            (1_047_553, "1.0M"),
            (5_000_000_000, "4.7G"),
            (u64::MAX, "16E"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(human(bytes), expected, "{bytes}");
        }
    }
}
