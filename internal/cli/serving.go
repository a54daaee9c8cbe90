package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
)

const (
	// processLogFlush limits how long the end of the process waits for its log.
	processLogFlush = time.Second
	// abruptFlush is the same after a second signal, which ends the process at once.
	abruptFlush = 100 * time.Millisecond
)

// serving runs a verb until a signal ends it: run, demo, controller and proxy. A failure of standard output or standard error must
// neither end nor block the process: a separate goroutine writes log to stderr, and writes to a closed pipe fail without ending the
// process. The context ends at the first SIGTERM or SIGINT, and the process at the second. Each SIGHUP is a value of hangup. The
// returned error was already logged, so it has no text.
func serving(stderr io.Writer, verb func(ctx context.Context, log *observe.ProcessLog, hangup <-chan os.Signal) error) error {
	// It is not reset, because the process ends with the verb.
	signal.Ignore(syscall.SIGPIPE)
	log := observe.NewProcessLog(stderr)
	ctx, hangup, stop := onSignals(log)
	defer stop() // last, so that until then a second signal ends the process
	defer log.Close(processLogFlush)
	err := verb(ctx, log, hangup)
	if err == nil {
		return nil
	}
	report(log.Last(), err)
	return &exitError{code: codeOf(err)}
}

// onSignals returns a context that ends at the first SIGTERM or SIGINT; the second one ends the process.
func onSignals(log *observe.ProcessLog) (context.Context, <-chan os.Signal, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)

	end := make(chan os.Signal, 2)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	go func() {
		select {
		case <-end:
			cancel()
		case <-done:
			return
		}
		select {
		case <-end:
			_, _ = io.WriteString(log.Last(), "moongate: second signal, exiting at once\n")
			log.Close(abruptFlush)
			os.Exit(exitProblems)
		case <-done:
		}
	}()
	return ctx, hangup, func() {
		signal.Stop(hangup)
		signal.Stop(end)
		close(done)
		cancel()
	}
}

// processLogOf returns the log that serving created, whose dropped lines are counted; nil if a caller of this package passed another
// writer.
func processLogOf(stderr io.Writer) *observe.ProcessLog {
	log, _ := stderr.(*observe.ProcessLog)
	return log
}
