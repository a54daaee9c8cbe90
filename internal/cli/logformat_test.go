package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestLogFormat: what is logged is text for people or an object for collectors, and another format is refused with what there is.
func TestLogFormat(t *testing.T) {
	for _, format := range []string{"", "text", "json"} {
		var out bytes.Buffer
		log, err := newLogger(&out, "", format)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("not at this level")
		log.Info("listening", "port", 80, "timeout", 30*time.Second)
		var line struct {
			Level, Msg string
			Port       int
			Timeout    string
		}
		switch err := json.Unmarshal(out.Bytes(), &line); {
		case format == "json" && (err != nil || line.Level != "INFO" || line.Msg != "listening" || line.Port != 80 || line.Timeout != "30s"):
			t.Errorf("%q: %s: %v", format, &out, err)
		case format != "json" && !strings.HasSuffix(out.String(), " level=INFO msg=listening port=80 timeout=30s\n"):
			t.Errorf("%q: %s", format, &out)
		}
	}
	var exit *exitError
	if _, err := newLogger(&bytes.Buffer{}, "", "xml"); !errors.As(err, &exit) || exit.code != exitUsage || !strings.Contains(err.Error(), "use text or json") {
		t.Errorf("xml: %v", err)
	}
	if _, err := newGateway(RunOptions{EngineFlags: EngineFlags{LogFormat: "xml"}}); err == nil || !strings.Contains(err.Error(), "--log-format") {
		t.Errorf("run with xml: %v", err)
	}
}
