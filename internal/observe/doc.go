// Package observe is where every request ends: Observer.Finish counts it and
// logs it, and nothing else does. It holds the table of reason words, the
// access log and the Prometheus metrics. It exists so that log, metric and error
// say the same word for the same outcome.
//
// The path of a request takes no lock that is held across I/O, allocates nothing
// and never waits: counters are atomics behind handles that the engine resolves when
// it compiles a rule, and log lines are encoded into memory that a goroutine of
// the AccessLog writes; where that cannot keep up, lines are dropped and counted.
//
// # Access log
//
// By default one JSON object a line, with the members of package accesslog that are always there, in their order, and behind them
// those about which there is something to say; accesslog.Options choose others, or a text. A
// value that does not exist is null. Durations are milliseconds with three
// decimals and their keys end in _ms. Bytes that are not UTF-8 are logged as
// U+FFFD, control characters are escaped, and values longer than their bound are cut.
//
// The log of the process is apart from it: ProcessLog writes its lines, in their order, and drops them too where its reader does not keep up.
//
// # Metrics
//
// All names begin with moongate_. The number of series is bounded: at most
// MetricsOptions.MaxRules rules are exported one by one, the rest are added up
// under route="(other)". Series of a rule that is gone vanish after
// MetricsOptions.Grace.
//
// The package imports neither the proxy nor the control plane: proxy/... imports it.
package observe
