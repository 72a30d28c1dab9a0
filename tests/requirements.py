"""The requirements of the specification for servers: an ID, the page that defines it, and a summary.

Tests name the requirements that they verify with `requirement`, and `test_requirements.py` checks that none is missing.
Pages without a date are those of the newest revision with the rule: 2026-07-28, or 2025-11-25 for the legacy era.
"decision" marks behaviour that the specification does not define.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import pytest

requirement: Final = pytest.mark.requirement
"""`@requirement("tools/unknown")`"""

REQUIREMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Messages
        "base/parse-error": "JSON-RPC 2.0 §5.1: invalid JSON is -32700",
        "base/invalid-request": "JSON-RPC 2.0 §5.1, basic/index Messages: -32600; an id is not null",
        "base/unknown-method": "basic/index Error Codes, streamable-http: -32601, in the modern era with 404",
        "base/id-echo": "basic/index Responses: the id of the request, with its type",
        "base/error-id": "schema JSONRPCErrorResponse: no id if it is unreadable; null if the schema requires an id",
        "base/notifications": "basic/index Notifications: no response",
        "base/batch-gone": "2025-03-26 basic/index Batching: accepted only in this revision",
        "base/no-responses": "basic/transports/streamable-http: clients send no responses",
        "base/empty-result": "schema EmptyResult: legacy acknowledgements are exactly {}",
        "base/result-type": "basic/index Result Type: on every result of 2026-07-28, and on no other",
        "base/envelope": "basic/index _meta: a request without its version and capabilities is -32602, 400",
        "base/client-info-optional": "basic/index _meta: clientInfo is optional",
        "base/server-info-in-meta": "basic/index _meta: results contain serverInfo",
        # Eras and versions
        "versioning/unsupported": "basic/versioning: -32022 with the versions that are supported, 400",
        "versioning/both-eras": "basic/versioning Backward Compatibility: determined by each request",
        "versioning/legacy-methods-gone": "changelog: initialize, ping, setLevel, (un)subscribe were removed",
        "versioning/modern-methods-alone": "basic/versioning: discover and listen need an envelope",
        "lifecycle/echo-version": "basic/lifecycle Version Negotiation: a supported version is confirmed",
        "lifecycle/other-version": "basic/lifecycle Version Negotiation: otherwise the latest supported version",
        "lifecycle/server-info": "basic/lifecycle Initialization, schema Implementation: in the revision's form",
        "lifecycle/capabilities": "basic/lifecycle Capability Negotiation: no capabilities of newer revisions",
        "lifecycle/malformed-initialize": "basic/lifecycle Error Handling: -32602, and no session",
        "lifecycle/initialize-first": "basic/lifecycle Initialization: the first interaction; only ping can precede it",
        "lifecycle/initialize-once": "decision: a second one is -32600, 400",
        "lifecycle/ping": "basic/utilities/ping: a prompt response",
        "discover/result": "server/discover: versions for envelopes, capabilities, instructions",
        "capabilities/client-required": "basic/index Error Codes: -32021, 400; a tool error in older revisions",
        # Extensions
        "skills/declared": "SEP-2640 Capability Negotiation: declared by 2026-07-28, with directoryRead",
        "skills/resources": "SEP-2640 Resource Mapping, Resource Metadata: each file is a resource",
        "skills/entry": "SEP-2640 Skill Entries: front matter verbatim, digest and size of every file",
        "skills/unknown": "SEP-2640 Error Handling: unknown skills and directories are -32602",
        "skills/directory": "SEP-2640 Reading Directories: direct children, in pages, directories as inode/directory",
        "skills/pages": "SEP-2640 Listing Skills, Reading Directories: nextCursor round trips; entries are atomic",
        "apps/declared": "decision: io.modelcontextprotocol/ui is declared in revisions with extensions",
        "apps/tool": "SEP-1865 Resource Discovery: _meta.ui of a tool, and the older flat key",
        "apps/page": "SEP-1865 UI Resource Format: media type, and _meta.ui in the list and beside the HTML",
        # Authorization
        "authorization/every-request": "basic/authorization Access Token Usage: checked in every request",
        "authorization/challenge": "basic/authorization Error Handling: 401 with metadata URL and scopes",
        "authorization/malformed": "basic/authorization Error Handling: 400",
        "authorization/metadata": "basic/authorization Protected Resource Metadata: at both URLs, with the resource",
        "authorization/audience": "basic/authorization Token Audience Binding: tokens for other audiences are rejected",
        "authorization/insufficient-scope": "basic/authorization Scope Challenge: 403 with all required scopes",
        "authorization/sessions": "2025-11-25 security best practices: a session has one owner",
        # Header fields and HTTP
        "headers/standard": "streamable-http Request Metadata: mirrors of the body, or -32020, 400",
        "headers/parameters": "streamable-http Request Metadata: Mcp-Param-* mirror arguments",
        "headers/base64": "streamable-http Request Metadata: the base64 form, decoded strictly",
        "headers/legacy-ignores": "decision: 2025-11-25 does not define these header fields",
        "http/ignores-sessions": "streamable-http: session ids and event ids are ignored",
        "http/disconnect-is-not-cancellation": "2025-11-25 basic/transports Sending Messages: the call continues",
        "sse/disconnect-is-cancellation": "2024-11-05 basic/transports: the stream is the session (decision)",
        "http/event-ids": "2025-11-25 basic/transports Resumability: unique in the session, for one stream; priming",
        "http/resume": "2025-11-25 basic/transports Resumability: a GET continues one stream after its last event",
        "http/foreign-event-ids": "decision: 400 for an id of another session, a new stream for an expired one",
        "http/replay-bounds": "decision: limited by number, bytes and age; nothing is kept after the end of a session",
        "http/polling": "2025-11-25 basic/transports Sending Messages: retry, then closed before the response",
        "http/questions-wait": "2025-11-25 basic/transports: requests use the call's stream, and wait for a reconnect",
        "http/no-cancelled-notification": "basic/patterns/cancellation: over HTTP, only closing the stream cancels",
        # Lists
        "pagination/walk": "server/utilities/pagination: every entry once, until there is no nextCursor",
        "pagination/page": "server/utilities/pagination: a nextCursor only if there are more entries",
        "pagination/invalid-cursor": "server/utilities/pagination Error Handling: -32602",
        "pagination/stale-cursor": "decision: a cursor of a changed list is -32602",
        "caching/hints": "server/utilities/caching: ttlMs and cacheScope on lists and discover, the same on all pages",
        "caching/read": "server/utilities/caching: on resources/read too",
        # Tools
        "tools/order": "server/tools Listing Tools: a deterministic order",
        "tools/definition": "schema Tool: the fields of the revision",
        "tools/input-schema": "schema Tool: properties are objects; any JSON Schema since 2026-07-28",
        "tools/output-schema": "server/tools Output Schema: since 2025-06-18; the root is an object before 2026-07-28",
        "tools/call": "server/tools Calling Tools",
        "tools/absent-arguments": "schema CallToolRequest: omitted arguments are an empty object",
        "tools/unknown": "server/tools Error Handling: -32602, never isError",
        "tools/malformed-call": "server/tools Error Handling: -32602",
        "tools/invalid-arguments": "server/tools Error Handling (SEP-1303): isError, with text that helps",
        "tools/execution-error": "server/tools Error Handling: isError",
        "tools/protocol-error": "server/tools Error Handling: a JSON-RPC error",
        "tools/structured-content": "server/tools Structured Content: since 2025-06-18; any JSON since 2026-07-28",
        "content/blocks": "schema ContentBlock: audio since 2025-03-26, resource_link since 2025-06-18",
        # Resources
        "resources/definition": "schema Resource: the fields of the revision",
        "resources/template-definition": "schema ResourceTemplate: the fields of the revision",
        "resources/read": "server/resources Reading Resources: text, or bytes as base64",
        "resources/template": "server/resources Resource Templates: RFC 6570",
        "resources/not-found": "server/resources Error Handling: -32602, before 2026-07-28 -32002, with the URI",
        "resources/malformed-read": "server/resources Error Handling: -32602",
        "resources/subscribe": "2025-11-25 server/resources Subscriptions; an unknown URI is rejected (decision)",
        "resources/updated": "2025-11-25 server/resources Subscriptions: notifications/resources/updated",
        # Prompts and completion
        "prompts/definition": "schema Prompt: the fields of the revision",
        "prompts/get": "server/prompts Getting a Prompt",
        "prompts/invalid": "server/prompts Error Handling: an unknown name or missing arguments are -32602",
        "prompts/content": "schema PromptMessage: the content of the revision",
        "completion/values": "server/utilities/completion: prompts by name, resources by URI or template",
        "completion/most-values": "server/utilities/completion: at most 100, with the total and hasMore",
        "completion/invalid": "server/utilities/completion Error Handling: -32602",
        # Running calls
        "progress/token": "basic/patterns/progress: the token of the request, unchanged",
        "progress/increases": "basic/patterns/progress: each value is greater than the one before",
        "progress/asked-for": "basic/patterns/progress: no progress without a token",
        "progress/before-answer": "basic/patterns/progress: while the request is in progress, and not after",
        "logging/set-level": "2025-11-25 server/utilities/logging: later messages have this severity or above",
        "logging/bad-level": "2025-11-25 server/utilities/logging Error Handling: -32602",
        "logging/per-request": "server/utilities/logging: the request's logLevel applies; without it, no logs",
        "cancellation/stops": "basic/patterns/cancellation: processing stops",
        "cancellation/no-answer": "basic/patterns/cancellation: a cancelled request gets no response",
        "cancellation/unknown": "basic/patterns/cancellation: unknown and finished requests are ignored",
        # Tasks (ext-tasks specification/draft/tasks)
        "tasks/discover": "Capability Negotiation: an extension in server/discover, not a capability",
        "tasks/negotiation": "Capability Negotiation, Protocol Errors: -32021 for other clients, for any id",
        "tasks/legacy": "Capability Negotiation: the extension is not defined for older revisions",
        "tasks/create": "Task Creation: a flat result; tasks/get finds the task at once",
        "tasks/statuses": "Task Execution Errors: `isError` completes a task, a JSON-RPC error fails it",
        "tasks/unknown": "Protocol Errors: -32602 for an unknown task",
        "tasks/binding": "Security Considerations: each request is checked; ids cannot be guessed",
        "tasks/cancel": "Task Cancellation: an empty acknowledgement, for finished tasks too",
        "tasks/input": "Task Update Requests: keys are unique; unknown and answered keys are ignored",
        "tasks/partial": "Task Update Requests: a response can cover some of the open questions",
        "tasks/before": "Task Creation: multi round-trip requests are resolved before the task is created",
        "tasks/after": "Polymorphic Results: the server decides for each request",
        "tasks/ttl": "Task Polling: a task is kept for its ttl, and can be deleted after it",
        "tasks/notifications": "Task Status Notifications: sent on streams for the task, with the content of tasks/get",
        "tasks/limits": "basic/utilities/tasks, Security: limits of concurrent tasks and of their ttl",
        # Questions
        "asking/declared": "client/elicitation, sampling, roots Capabilities: only what the client declared",
        "asking/several": "basic/patterns/mrtr: several input requests at once; concurrent requests in older revisions",
        "asking/malformed": "basic/patterns/mrtr: validated responses, -32602; before, a tool error (decision)",
        "elicitation/form": "client/elicitation: forms since 2025-06-18, in the form of the revision",
        "elicitation/url": "client/elicitation: URLs since 2025-11-25; an elicitationId only in that revision",
        "sampling/create": "client/sampling: sampling/createMessage",
        "roots/list": "client/roots: roots/list",
        "mrtr/retry": "basic/patterns/mrtr: the client retries with inputResponses",
        "mrtr/state": "basic/patterns/mrtr: requestState is signed and bound to its call",
        # Notifications
        "list-changed/session": "2025-11-25 server/tools, prompts, resources: list_changed",
        "list-changed/waits": "decision: kept for the next stream of the session, each list once",
        "subscriptions/acknowledged": "basic/patterns/subscriptions: the first message contains the accepted filter",
        "subscriptions/id": "basic/patterns/subscriptions: the request's id on each message, with its type",
        "subscriptions/filter": "basic/patterns/subscriptions: only the requested notifications",
        "subscriptions/resources": "basic/patterns/subscriptions: by URI; unknown ones are left out (decision)",
        "subscriptions/several": "basic/patterns/subscriptions: several at once",
        "subscriptions/ends": "basic/patterns/subscriptions: ended by the client, without a response",
        "subscriptions/server-ends": "basic/patterns/subscriptions: a result at the end; on stdio after a cancellation",
        "subscriptions/task-ids": "ext-tasks listen: -32021 without the declared extension",
        "subscriptions/malformed": "basic/patterns/subscriptions: -32602",
    }
)
