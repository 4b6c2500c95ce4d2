// The protocol of podworker: one JSON object a line, over a Unix socket or stdin and stdout.
// Made by `pod protocol typescript`; do not edit.

/** A run began. */
export interface RunStart {
  session_id: string;
  /** The text submitted; None for a resumed run. */
  input?: string;
}

/** A turn began: a real user message joined the history. */
export interface TurnStart {
  turn: number;
}

/** A request goes to the model. */
export interface RequestStart {
  /** Counts from 1 within the run. */
  request: number;
  /** The expected size of its prompt. */
  input_tokens: number;
}

/** More visible text. */
export interface TextDelta {
  text: string;
}

/** The visible text of one answer, whole. */
export interface TextDone {
  text: string;
}

/** More of the model's reasoning. */
export interface ReasoningDelta {
  text: string;
}

/** The model began a tool call. */
export interface ToolCallStart {
  call_id: string;
  name: string;
}

/** More of a call's arguments. */
export interface ToolCallArgsDelta {
  call_id: string;
  text: string;
}

/** A call is complete and in the log; `arguments` is the text as received. */
export interface ToolCallDone {
  call_id: string;
  name: string;
  arguments: string;
}

/** A call's result, in the log. */
export interface ToolResult {
  call_id: string;
  name: string;
  summary: string;
  content?: string;
  is_error: boolean;
}

/** A tool call waits for somebody's decision. */
export interface ApprovalRequest {
  call_id: string;
  call_uid: string;
  name: string;
  /** The text as received. */
  arguments: string;
  /** Why somebody is asked, if whoever wants it says. */
  reason?: string;
  /** After how many seconds it is denied. */
  timeout_s: number;
}

/** A tool call waits no more. */
export interface ApprovalResolved {
  call_id: string;
  call_uid: string;
  name: string;
  /** `withdrawn`: the run ended first. */
  decision: "allow" | "deny" | "withdrawn";
  /** `session`: the tool is not asked about again in this session. */
  scope?: "once" | "session";
  by: string;
}

/** What the provider measured for one request of the pod's own. */
export interface Usage {
  /** The whole prompt, the cached part included. */
  input_tokens?: number;
  output_tokens?: number;
  cache_read?: number;
  cache_write?: number;
  /** US dollars. */
  cost?: number;
  model?: string;
}

/** A request failed before any content and will be repeated. */
export interface Retry {
  attempt: number;
  delay_s: number;
  reason: string;
}

/** Old tool results are sent as their summaries from now on. */
export interface PruneApplied {
  /** Results before this index of the history are sent without content. */
  upto_index: number;
  /** How many results that newly concerns. */
  items: number;
  /** Estimated tokens saved in every request. */
  est_savings: number;
  reason: string;
}

/** A compaction began. */
export interface CompactionStart {
  session_id: string;
  trigger: "threshold" | "request_threshold" | "overflow" | "manual" | "engine" | "model_switch" | "idle";
  engine: string;
  /** The occupancy that triggered it. */
  input_tokens: number;
  /** The trigger's own threshold; None where an engine decided by itself. */
  threshold?: number;
  focus?: string;
  /** What the engine wants said of it in place of the usual line; empty: nothing. */
  message?: string;
}

/** A compaction was committed: the pod continues in a new session. */
export interface CompactionDone {
  old_session_id: string;
  new_session_id: string;
  /** The old session's id and the hash of its head. */
  compacted_from: [string, string];
  trigger: "threshold" | "request_threshold" | "overflow" | "manual" | "engine" | "model_switch" | "idle";
  engine: string;
  items_before: number;
  items_after: number;
  /** The whole prompt, by the same estimator as `tokens_after`. */
  tokens_before: number;
  tokens_after: number;
  duration_ms: number;
  /** What the summarizer used, all its requests together. */
  usage?: Usage;
  /** How many compactions lie behind the new session. */
  generation: number;
  method: "summary" | "digest" | "engine";
}

/** A compaction failed; the history is unchanged. */
export interface CompactionFailed {
  session_id: string;
  trigger: "threshold" | "request_threshold" | "overflow" | "manual" | "engine" | "model_switch" | "idle";
  /** One word, such as `floor`, `no_progress`, `refusal`, `timeout`, `cancelled`. */
  reason: string;
  message: string;
  consecutive_failures: number;
  /** Whether automatic compaction is off for this session now. */
  disabled: boolean;
}

/** Something about the context engine that a person should know. */
export interface EngineNotice {
  engine: string;
  message: string;
}

/** The pod continues in another session. */
export interface SessionChanged {
  old_session_id: string;
  new_session_id: string;
  /** `head_mismatch`: the log was changed underneath, and the pod goes on in a fork. */
  reason: "compaction" | "new" | "rewind" | "head_mismatch";
}

/** What the pod is doing. */
export interface Status {
  state: "idle" | "running" | "paused" | "compacting";
}

/** Something a person should know; the run goes on. */
export interface Alert {
  level: "info" | "warning" | "error";
  message: string;
}

/** A turn ended. */
export interface TurnEnd {
  turn: number;
}

/** What went wrong, in words for a person and a code for a program. */
export interface ErrorInfo {
  /** One word, such as `refused`, `unreachable`, `overflow`, `storage`, `thrash`. */
  code: string;
  /** What happened and why, on one line. */
  message: string;
  /** What can be done. */
  hint?: string;
}

/** A run ended. */
export interface RunEnd {
  outcome: "finished" | "paused" | "limit_reached" | "yielded" | "cancelled" | "error";
  session_id: string;
  /** The last answer's visible text. */
  text?: string;
  error?: ErrorInfo;
  /** Why, for outcomes other than `finished`. */
  message?: string;
  requests: number;
  /** All requests of the run together. */
  usage?: Usage;
  cost?: number;
}

/** Something failed outside of any run. */
export interface Error {
  code: string;
  message: string;
  hint?: string;
}

/** Where the pod stands, for a subscriber who cannot be given all he missed. */
export interface Snapshot {
  session_id: string;
  state: "idle" | "running" | "paused" | "compacting";
  history_len: number;
  occupancy: number;
}

/** The subscriber was too slow and is cut off here; it can subscribe again from `next_seq`. */
export interface Lagged {
  next_seq: number;
}

/** An image that goes with a prompt. */
export interface ImageParam {
  /** Such as `image/png`. */
  media_type: string;
  /** The bytes, in base64. */
  data: string;
}

/** Run a prompt. Input that comes while history is compacted waits for the end of that. */
export interface RunParams {
  /** The prompt. */
  input: string;
  /** Images that go with it. */
  images?: ImageParam[];
  /**
   * The message's uid. Sent again with the same one, as after a lost connection, the prompt is run
   * once: the answer is that of the first time.
   */
  uid?: string | null;
  /** A JSON Schema: the answer's text is to be JSON that fits. That it is JSON is seen to. */
  output_schema?: Record<string, unknown> | null;
}

/** The run is accepted; how it goes is told by events, up to `run_end`. */
export interface Accepted {
  accepted: true;
  /** The session that the pod is on now; a compaction may come first. */
  session_id: string;
  /** The last event before the run: `run_start` has a greater one. */
  seq: number;
}

/** Takes no parameters. */
export interface NoParams {
}

/** It was done; there is nothing else to say. */
export interface Done {
}

/** A session's id: the one that was made, or that the pod is on now. */
export interface SessionAnswer {
  session_id: string;
}

/** Compact the history now, whatever its size; answered when that is done. */
export interface CompactParams {
  /** What the summary should keep most of. */
  focus?: string | null;
}

/** How the compaction ended. */
export interface CompactAnswer {
  /** As the event `compaction_done`; null where there was nothing to cut. */
  done: CompactionDone | null;
}

/** Make a new session that begins as this one is, or was at an entry; nothing else changes. */
export interface ForkParams {
  /** An entry's hash, or its first 8 or more digits; default: the head. */
  at?: string | null;
}

/** Go on in a new session that begins as the history was at an entry. */
export interface RewindParams {
  /** An entry's hash, or its first 8 or more digits. */
  to: string;
}

/** Read items of the history, a page at a time; also of a session that the pod has left. */
export interface HistoryParams {
  /** Default: the session that the pod is on. */
  session_id?: string | null;
  /** The index of the first item wanted; negative ones count from the end. */
  start?: number;
  /** The most items to give. A page is shorter where its items are large. */
  limit?: number;
}

/** A page of the history. */
export interface HistoryAnswer {
  session_id: string;
  /** As in the session's log: each has a `type` and a `uid`. */
  items: Record<string, unknown>[];
  /** The index of the first item given. */
  start: number;
  /** How many items the history has. */
  total: number;
  /** The `start` of the page after this one; null after the last. */
  next: number | null;
  /** The last event before the page was made. */
  seq: number;
}

/** A tool call that waits for a decision. */
export interface WaitingCall {
  call_id: string;
  call_uid: string;
  name: string;
  /** The text as received. */
  arguments: string;
  /** Why somebody is asked, if whoever wants it says. */
  reason?: string;
  /** When it is denied by itself, in milliseconds since 1970, UTC. */
  until_ms?: number;
}

/** Where the pod stands. Sizes are tokens. */
export interface StatusAnswer {
  name: string;
  state: "idle" | "running" | "paused" | "compacting";
  session_id: string;
  provider: string;
  model: string;
  engine: string;
  history_len: number;
  turns: number;
  /** Items before this index are sent without content. */
  watermark: number;
  /** Tokens that the whole prompt takes. */
  occupancy: number;
  /** How that is known: `measured`, `interpolated` or `guessed`. */
  occupancy_source: string;
  window: number | null;
  compact_threshold: number | null;
  request_threshold: number | null;
  compaction_failures: number;
  compaction_disabled: boolean;
  /** How many compactions are behind the history. */
  generation: number;
  /** What the engine says of itself. */
  engine_status: Record<string, unknown>;
  launch: string;
  /** The last event of this launch. */
  seq: number;
  pid: number;
  /** When the pod was launched, in milliseconds since 1970, UTC. */
  since_ms: number;
  manifest: string;
  /** The tool calls that wait for a decision, oldest first. */
  approvals: WaitingCall[];
  /** How many connections are subscribed now. */
  subscribers: number;
}

/** Have events sent on this connection, from now on or from one that was published before. */
export interface SubscribeParams {
  /** The first event wanted, inclusive; default: those from now on. */
  from_seq?: number | null;
  /** The launch that `from_seq` is of; default: the present one. */
  launch?: string | null;
  /** Names, or patterns such as `compaction_*`; default: all. What is not wanted is not held. */
  events?: string[] | null;
  /** Only watch: the subscriber does not count as somebody who could answer an approval. */
  observe?: boolean;
}

/** From where the events come. They follow this answer on the same connection. */
export interface SubscribeAnswer {
  /** The present launch. */
  launch: string;
  /** The last event published before the answer. */
  seq: number;
  /**
   * What comes before the live events: nothing; what is held in memory, whole; durable events
   * reconstructed from the log; or a `snapshot`, for there is no way to tell what was missed.
   */
  replay: "none" | "memory" | "log" | "snapshot";
  /**
   * Why not everything that was published is replayed: it is no longer held, or it belongs to an
   * earlier launch.
   */
  reason: "too_old" | "other_launch" | null;
}

/** The subscription has ended. */
export interface UnsubscribeAnswer {
  /** The launch that `next_seq` is of: an earlier one while that is still being told. */
  launch: string;
  /** The first event that was not sent. */
  next_seq: number;
}

/** Decide about a tool call that waits. */
export interface ApproveParams {
  /**
   * The call's `call_uid`, which names that call alone, or its `call_id`, which a model may use
   * again: where several calls of that id wait, it is refused.
   */
  call_id: string;
  decision: "allow" | "deny";
  /** Whether that holds for this call, or for all of the same tool in this session. */
  scope?: "once" | "session";
  /** Who decided, as it is logged; default: the user and process at the other end. */
  by?: string;
}

/** The slash commands of the context engine. */
export interface CommandsAnswer {
  /** By name, without the slash: what each does. */
  commands: Record<string, string>;
  /** By name: how its arguments are written, of those that say so. */
  hints: Record<string, string>;
}

/** Run a slash command of the context engine. */
export interface CommandParams {
  name: string;
  args?: string;
}

/** What it had to say. */
export interface TextAnswer {
  text: string;
}

/** The pod is there. */
export interface PingAnswer {
  launch: string;
  /** The last event of this launch. */
  seq: number;
  /** Milliseconds since 1970, UTC. */
  ts: number;
}

/** End the pod: what runs is cancelled, subscribers get the rest, all connections close. */
export interface ShutdownParams {
  /** Let the run and the compaction that are going on come to their end first. */
  wait?: boolean;
}

/** Who the pod is; `seq` is its last event so far. */
export interface Hello {
  protocol: 1;
  pod: string;
  launch: string;
  seq: number;
  session_id: string;
  version: string;
}

/** All wanted events up to `seq` were sent before it. */
export interface Heartbeat {
  launch: string;
  seq: number;
  ts: number;
}

/** Every event's data, by the event's name. */
export interface Events {
  run_start: RunStart;
  turn_start: TurnStart;
  request_start: RequestStart;
  text_delta: TextDelta;
  text_done: TextDone;
  reasoning_delta: ReasoningDelta;
  tool_call_start: ToolCallStart;
  tool_call_args_delta: ToolCallArgsDelta;
  tool_call_done: ToolCallDone;
  tool_result: ToolResult;
  approval_request: ApprovalRequest;
  approval_resolved: ApprovalResolved;
  usage: Usage;
  retry: Retry;
  prune_applied: PruneApplied;
  compaction_start: CompactionStart;
  compaction_done: CompactionDone;
  compaction_failed: CompactionFailed;
  engine_notice: EngineNotice;
  session_changed: SessionChanged;
  status: Status;
  alert: Alert;
  turn_end: TurnEnd;
  run_end: RunEnd;
  error: Error;
  snapshot: Snapshot;
  lagged: Lagged;
}

/** What every method takes and answers. */
export interface Methods {
  /** Run a prompt; answered when it is accepted. */
  run: { params: RunParams; answer: Accepted };
  /** Go on with a run that stopped; answered when it is accepted. */
  resume: { params: NoParams; answer: Accepted };
  /** Stop the run or the compaction that is going on. */
  cancel: { params: NoParams; answer: Done };
  /** Stop the run before its next request. */
  pause: { params: NoParams; answer: Done };
  /** Begin a fresh session. */
  new: { params: NoParams; answer: SessionAnswer };
  /** Compact the history now. */
  compact: { params: CompactParams; answer: CompactAnswer };
  /** Make a copy of the session, to be run by itself. */
  fork: { params: ForkParams; answer: SessionAnswer };
  /** Go back to an entry, in a new session. */
  rewind: { params: RewindParams; answer: SessionAnswer };
  /** Read the history, a page at a time. */
  get_history: { params: HistoryParams; answer: HistoryAnswer };
  /** Tell where the pod stands. */
  status: { params: NoParams; answer: StatusAnswer };
  /** Have events sent on this connection. */
  subscribe: { params: SubscribeParams; answer: SubscribeAnswer };
  /** Have no more events sent. */
  unsubscribe: { params: NoParams; answer: UnsubscribeAnswer };
  /** Allow or deny a tool call that waits. */
  approve: { params: ApproveParams; answer: Done };
  /** List the context engine's own slash commands. */
  engine_commands: { params: NoParams; answer: CommandsAnswer };
  /** Run one of them. */
  engine_command: { params: CommandParams; answer: TextAnswer };
  /** Answered when no run and no compaction is going on. */
  idle: { params: NoParams; answer: Done };
  /** Tell that the pod is there. */
  ping: { params: NoParams; answer: PingAnswer };
  /** End the pod. */
  shutdown: { params: ShutdownParams; answer: Done };
}

/** An event, by its name. `seq` rises by one within a launch. */
export interface Envelope<Name extends keyof Events> {
  seq: number;
  launch: string;
  /** Milliseconds since 1970, UTC. */
  ts: number;
  event: Name;
  data: Events[Name];
  /** The session and the entry that make a durable event durable. */
  ref?: [string, number];
  /** The first of several deltas that were joined for a slow subscriber; `seq` is the last. */
  first_seq?: number;
}

/** Any event. */
export type PodEvent = { [Name in keyof Events]: Envelope<Name> }[keyof Events];

/** A request; without an id it is not answered. */
export interface Request<Name extends keyof Methods = keyof Methods> {
  id?: string | number;
  method: Name;
  params?: Methods[Name]["params"];
}

/** The answer of a request that went well. */
export interface Answer<Name extends keyof Methods = keyof Methods> {
  id: string | number;
  ok: Methods[Name]["answer"];
}

/** The answer of one that did not; of a line that is no request, the id is null. */
export interface Refusal {
  id: string | number | null;
  error: ErrorInfo;
}

/** Any line that a pod sends. Readers pass over what they do not know. */
export type Line = { hello: Hello } | { heartbeat: Heartbeat } | Answer | Refusal | PodEvent;
