//! What comes back from a server, as a model can read it.

use std::error::Error;
use std::time::Duration;

use ferrata::NodeError;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, ResourceContents};
use rmcp::service::ServiceError;
use rmcp::transport::streamable_http_client::{HttpStatusError, StreamableHttpError};

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
        _ => over_http(&error)
            .unwrap_or_else(|| NodeError::new(format!("the MCP server gave no answer: {}", innermost(&error))).transient()),
    }
}

/// What is known of a call that got no answer over HTTP.
fn over_http(error: &ServiceError) -> Option<NodeError> {
    match chain(error).find_map(|error| error.downcast_ref::<StreamableHttpError<reqwest::Error>>())? {
        StreamableHttpError::HttpStatus(HttpStatusError { status, retry_after, .. }) => {
            let seconds = retry_after.as_deref().and_then(|seconds| seconds.trim().parse().ok());
            let error = NodeError::http(*status, "from the MCP server");
            Some(seconds.map(Duration::from_secs).into_iter().fold(error, NodeError::retry_after))
        }
        StreamableHttpError::Client(client) if client.is_connect() => {
            Some(NodeError::new(format!("the MCP server cannot be reached: {client}")).transient().not_performed())
        }
        _ => None,
    }
}

/// An error and its causes.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// What was wrong in the end, without the types of the library around it.
fn innermost<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    chain(error).last().unwrap_or(error)
}
