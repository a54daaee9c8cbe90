// Package observe is where every request ends: Observer.Finish counts and logs it, and nothing else does. The package contains the
// table of reason words, the access log and the Prometheus metrics. It exists so that log, metric and error use the same word for
// the same outcome.
//
// The path of a request takes no lock that is held across I/O, allocates nothing and never waits: counters are atomics behind
// handles that the engine resolves when it compiles a rule, and log lines are encoded into memory that a goroutine of the AccessLog
// writes; if that cannot keep up, lines are dropped and counted.
//
// # Access log
//
// By default a line is one JSON object, with the members of package accesslog that are always present, in order, followed by those
// optional ones that have a value; accesslog.Options select others, or a text format. A value that does not exist is null. Durations
// are milliseconds with three decimals and their keys end in _ms. Bytes that are not UTF-8 are logged as U+FFFD, control characters
// are escaped, and values longer than their maximum are truncated.
//
// The log of the process is separate: ProcessLog writes its lines in order, and drops them too if its reader does not keep up.
//
// # Metrics
//
// All names begin with moongate_. The number of series is limited: at most MetricsOptions.MaxRules rules are exported separately,
// the rest are added up under route="(other)". Series of a removed rule disappear after MetricsOptions.Grace.
//
// The package imports neither the proxy nor the control plane: proxy/... imports it.
package observe
