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
	// processLogFlush bounds how long the end waits for the log of the process.
	processLogFlush = time.Second
	// abruptFlush does after a second signal, which ends the process at once.
	abruptFlush = 100 * time.Millisecond
)

// serving runs what a verb does until a signal ends it: run, demo, controller and proxy. What becomes of standard output and standard error is no reason for it to end or to wait:
// log is written to stderr by a goroutine of its own, and a pipe that was closed fails writes and does not end the process. The context ends at the first SIGTERM or
// SIGINT, and the process at the second. Each SIGHUP is a value of hangup. The error is reported when serving returns, so that it has no text any more.
func serving(stderr io.Writer, verb func(ctx context.Context, log *observe.ProcessLog, hangup <-chan os.Signal) error) error {
	// For good: the process ends with the verb.
	signal.Ignore(syscall.SIGPIPE)
	log := observe.NewProcessLog(stderr)
	ctx, hangup, stop := onSignals(log)
	defer stop() // last, so that a second signal ends the process until then
	defer log.Close(processLogFlush)
	err := verb(ctx, log, hangup)
	if err == nil {
		return nil
	}
	report(log.Last(), err)
	return &exitError{code: codeOf(err)}
}

// onSignals ends the context at the first SIGTERM or SIGINT and the process at the second.
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

// processLogOf returns the log that serving made, whose drops are counted; nil where a caller of this package has another writer.
func processLogOf(stderr io.Writer) *observe.ProcessLog {
	log, _ := stderr.(*observe.ProcessLog)
	return log
}
