//! A server of notes that speaks the Model Context Protocol, with no library: what it answers to each message.

use serde_json::{Value, json};

/// Notes, as long as the server lives.
#[derive(Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// The answer to a message; none to one that wants none.
    pub(crate) fn answer(&mut self, message: &Value) -> Option<Value> {
        let id = message.get("id")?;
        let params = &message["params"];
        let answered = match message["method"].as_str()? {
            "initialize" => Ok(json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"},
            })),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": tools()})),
            "tools/call" => self.call(params["name"].as_str().unwrap_or_default(), &params["arguments"]),
            other => Err((-32601, format!("no method {other}"))),
        };
        Some(match answered {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err((code, text)) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}),
        })
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Result<Value, (i32, String)> {
        let text = |text: String, is_error: bool| Ok(json!({"content": [{"type": "text", "text": text}], "isError": is_error}));
        match name {
            "add" if arguments["text"] == "" => text("an empty note".to_owned(), true),
            "add" if arguments["text"] == "refused" => Err((-32602, "no such note".to_owned())),
            "add" => {
                self.0.push(arguments["text"].as_str().unwrap_or_default().to_owned());
                text(format!("note {} added", self.0.len()), false)
            }
            "list" => text(self.0.join("; "), false),
            "variable" => {
                text(std::env::var(arguments["name"].as_str().unwrap_or_default()).unwrap_or("not set".to_owned()), false)
            }
            "die" => std::process::exit(3),
            other => Err((-32602, format!("no tool {other}"))),
        }
    }
}

fn tools() -> Value {
    let one = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    json!([
        {"name": "add", "description": "Adds a note.", "inputSchema": one("text")},
        {"name": "list", "description": "Lists the notes.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "variable", "inputSchema": one("name"), "annotations": {"readOnlyHint": true}},
        {"name": "die", "inputSchema": {"type": "object"}},
    ])
}
