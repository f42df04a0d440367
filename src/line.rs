//! Text that others wrote, for a line that people read.

/// `text` with control characters escaped, cut to `limit` characters.
pub fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for c in text.chars().take(limit) {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    if text.chars().nth(limit).is_some() {
        line.push_str("...");
    }
    line
}
