//! Prints what each node cost.

use ferrata::log::Report;

pub(crate) fn print(report: &Report) {
    println!("\n{:<10} {:>6} {:>9} {:>10} {:>12} {:>13}", "node", "tasks", "attempts", "time", "tokens sent", "tokens written");
    for row in &report.nodes {
        let seconds = row.ms as f64 / 1_000.0;
        println!(
            "{:<10} {:>6} {:>9} {:>8.2} s {:>12} {:>13}",
            row.node.as_str(),
            row.tasks,
            row.attempts,
            seconds,
            row.input_tokens,
            row.output_tokens
        );
    }
}
