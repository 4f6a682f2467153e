// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's list format: `0-3,8,12-15`.

/// Bounds the memory that a hostile list such as `0-65535,0-65535,...` takes.
const MAX_NUMBERS: usize = 1 << 20;

/// Parses a list such as `0-3,8,10-20:2/5` into ascending numbers without repeats. Blanks around
/// items are allowed, as is an empty list. `A-B:U/G` takes the first `U` of every `G` numbers, as in
/// the kernel. Numbers above `max` are refused, so that `0-4294967295` does not fill memory.
///
/// # Errors
/// The offending item, and what is wrong with it.
pub fn parse_cpulist(list: &str, max: u32) -> Result<Vec<u32>, (String, String)> {
    let mut out = parse_in_order(list, max)?;
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

/// As [`parse_cpulist`], but in the order of the list and with repeats.
pub(crate) fn parse_in_order(list: &str, max: u32) -> Result<Vec<u32>, (String, String)> {
    let mut out = Vec::new();
    if list.trim().is_empty() {
        return Ok(out);
    }
    for item in list.trim().split(',') {
        let item = item.trim();
        parse_item(item, max, &mut out).map_err(|what| (item.to_string(), what))?;
        if out.len() > MAX_NUMBERS {
            return Err((item.to_string(), "list too long".into()));
        }
    }
    Ok(out)
}

fn parse_item(item: &str, max: u32, out: &mut Vec<u32>) -> Result<(), String> {
    let number = |text: &str| -> Result<u32, String> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err("not a number or a range".into());
        }
        match text.parse::<u32>() {
            Ok(n) if n <= max => Ok(n),
            _ => Err(format!("number above {max}")),
        }
    };
    let (range, pattern) = match item.split_once(':') {
        Some((range, pattern)) => (range, Some(pattern)),
        None => (item, None),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    if first > last {
        return Err("range runs backwards".into());
    }
    let (used, group) = match pattern {
        None => (1, 1),
        Some(pattern) => {
            let (used, group) = pattern
                .split_once('/')
                .ok_or("stride is not `used/group`")?;
            (number(used)?, number(group)?)
        }
    };
    if used == 0 || group == 0 || used > group {
        return Err("stride needs 1 <= used <= group".into());
    }
    out.extend((first..=last).filter(|n| (n - first) % group < used));
    Ok(())
}

/// Parses a mask of hexadecimal words of 32 bits, the highest first: `00000001,0000000f`. Words may have
/// an `0x` before them. `None` if it is no such mask or has bits that are no CPU number.
pub(crate) fn parse_mask(mask: &str) -> Option<Vec<u32>> {
    const MAX_WORDS: usize = (crate::build::MAX_CPU_NUMBER as usize + 1) / 32;
    let words: Vec<&str> = mask.split(',').map(str::trim).collect();
    if words.len() > MAX_WORDS {
        return None;
    }
    let mut numbers = Vec::new();
    for (word, base) in words.iter().rev().zip((0u32..).step_by(32)) {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        // An empty word of `0x...,,` is zero in hwloc's writing; a mask of nothing is no mask.
        let empty = digits.is_empty() && words.len() > 1;
        if !empty && !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let bits = if empty {
            0
        } else {
            u32::from_str_radix(digits, 16).ok()?
        };
        numbers.extend(
            (0..32)
                .filter(|bit| bits >> bit & 1 == 1)
                .map(|bit| base + bit),
        );
    }
    Some(numbers)
}

/// Formats numbers as a mask of at least `bits` bits, as the kernel does: `00000001,0000000f`.
pub(crate) fn format_mask(numbers: &[u32], bits: usize) -> String {
    let mut words = vec![0u32; bits.div_ceil(32).max(1)];
    for number in numbers {
        words[*number as usize / 32] |= 1 << (number % 32);
    }
    let words: Vec<String> = words
        .iter()
        .rev()
        .map(|word| format!("{word:08x}"))
        .collect();
    words.join(",")
}

/// Formats numbers as the kernel does, runs compressed: `0-3,8`. Order and repeats do not matter.
pub fn format_cpulist(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut sorted: Vec<u32> = numbers.into_iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    format_in_order(&sorted)
}

/// Formats numbers in the order given; [`parse_in_order`] reads it back.
pub(crate) fn format_in_order(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [single] => single.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// The CPUs that a kernel's command line takes out of balancing (`isolcpus=`, its flag `domain` given or none), as it names
/// them: such a kernel attaches no sched_ext scheduler. The last such word counts, as it does there.
pub fn isolated_cpus(command_line: &str) -> Option<&str> {
    let words = command_line.split_ascii_whitespace();
    let list = words
        .filter_map(|word| word.strip_prefix("isolcpus="))
        .next_back()?;
    let is_cpus = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let (mut rest, mut flags, mut domain) = (list, false, false);
    while let Some((flag, after)) = rest.split_once(',').filter(|(flag, _)| !is_cpus(flag)) {
        (rest, flags, domain) = (after, true, domain || flag == "domain");
    }
    (domain || !flags).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the list format of the kernel, both ways, and no crash or memory blow-up on garbage.
    // Method: table of accepted lists with their content, table of refused ones.
    #[test]
    fn lists_parse_as_in_the_kernel() {
        let accepted: &[(&str, &[u32], &str)] = &[
            ("", &[], ""),
            ("0\n", &[0], "0"),
            ("0-3,8", &[0, 1, 2, 3, 8], "0-3,8"),
            ("8,0-3,2", &[0, 1, 2, 3, 8], "0-3,8"),
            ("0-6:2/4", &[0, 1, 4, 5], "0-1,4-5"),
            (" 1 , 3 ", &[1, 3], "1,3"),
        ];
        for (list, numbers, back) in accepted {
            assert_eq!(parse_cpulist(list, 100).unwrap(), *numbers, "{list}");
            assert_eq!(format_cpulist(numbers.iter().copied()), *back);
        }
        for list in [
            "x",
            "1-",
            "-1",
            "3-1",
            "0-4294967295",
            "101",
            "0-3:0/2",
            "0-3:2",
            "1,,2",
            "+1",
        ] {
            assert!(parse_cpulist(list, 100).is_err(), "{list} must be refused");
        }
    }

    // Goal: only what keeps sched_ext away counts. Method: forms of the word, as the kernel reads them.
    #[test]
    fn isolated_cpus_are_read_from_the_command_line() {
        for (line, cpus) in [
            ("quiet isolcpus=1-3 nohz_full=1-3", Some("1-3")),
            ("isolcpus=domain,managed_irq,2,4-5", Some("2,4-5")),
            ("isolcpus=nohz,managed_irq,2", None),
            ("isolcpus=1 isolcpus=7", Some("7")),
            ("nohz_full=1-3 rcu_nocbs=1-3", None),
            ("", None),
        ] {
            assert_eq!(isolated_cpus(line), cpus, "{line}");
        }
    }
}
