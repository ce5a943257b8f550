//! Asks in the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use ferrata::log::Question;
use ferrata::{Answer, Approval};

/// The answer from the command line or from the terminal; `None` if there is neither.
pub(crate) fn answer(given: Option<&Answer>, question: &Question) -> io::Result<Option<Answer>> {
    if let Some(answer) = given {
        return Ok(Some(answer.clone()));
    }
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    let draft = question.show.as_ref().and_then(|show| show.as_str()).unwrap_or_default();
    println!("\n{draft}\n");
    let mut lines = io::stdin().lock().lines();
    loop {
        print!("{} [approve, edit, reject] ", question.text);
        io::stdout().flush()?;
        let Some(line) = lines.next().transpose()? else { return Ok(None) };
        match line.trim() {
            "a" | "approve" => return Ok(Some(Approval::approve().by("terminal"))),
            "r" | "reject" => return Ok(Some(Approval::reject("rejected in the terminal").by("terminal"))),
            "e" | "edit" => {
                println!("Type the digest; a line with a single dot ends it.");
                let text = typed(&mut lines)?;
                if !text.trim().is_empty() {
                    return Ok(Some(Approval::edit(text).by("terminal")));
                }
                println!("That was empty.");
            }
            _ => println!("Please type approve, edit or reject."),
        }
    }
}

fn typed(lines: &mut impl Iterator<Item = io::Result<String>>) -> io::Result<String> {
    let mut text = String::new();
    for line in lines {
        let line = line?;
        if line == "." {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}
