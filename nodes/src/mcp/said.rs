//! What comes back from a server, as a model can read it.

use ferrata::NodeError;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, ResourceContents};
use rmcp::service::ServiceError;

use crate::tools::Said;

/// What a model can read of a result.
pub(super) fn said(result: CallToolResult) -> Said {
    let parts: Vec<String> = result.content.into_iter().map(part).collect();
    let text = match result.structured_content {
        Some(value) if parts.is_empty() => value.to_string(),
        _ => parts.join("\n"),
    };
    match result.is_error {
        Some(true) => Said::Failure(format!("The server says that the call failed: {text}")),
        _ => Said::Result(text),
    }
}

fn part(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Resource(inside) => match inside.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { uri, .. } => format!("[Left out: the data of {uri}.]"),
            _ => "[Left out: something that is no text.]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        ContentBlock::Image(image) => format!("[Left out: an image, {}.]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[Left out: a recording, {}.]", audio.mime_type),
        _ => "[Left out: something that is no text.]".to_owned(),
    }
}

pub(super) fn node_error(error: ServiceError) -> NodeError {
    let unauthorised = error.auth_challenge().is_some();
    match &error {
        _ if unauthorised => NodeError::new(format!("the MCP server wants another token: {error}")).terminal().not_performed(),
        ServiceError::McpError(said) => {
            let refused =
                [ErrorCode::INVALID_PARAMS, ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_REQUEST, ErrorCode::PARSE_ERROR];
            let told = NodeError::new(said.message.to_string()).deterministic();
            if refused.contains(&said.code) { told.not_performed() } else { told }
        }
        _ => NodeError::new(format!("the MCP server gave no answer: {error}")).transient(),
    }
}
