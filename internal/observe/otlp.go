package observe

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// otlpTimeout bounds one export; lines are gathered meanwhile, and dropped where there are too many.
	otlpTimeout = 10 * time.Second
	// otlpTries is how often a batch is sent at most.
	otlpTries = 3
	// What is read of a collector's response.
	otlpResponseBytes = 64 << 10
)

// logExporter sends lines to a collector by OTLP over HTTP, in binary Protobuf (https://opentelemetry.io/docs/specs/otlp/#otlphttp). Each Write is one export.
type logExporter struct {
	url     string
	client  http.Client
	backoff time.Duration // before the second try; doubled with each
}

// isCollector reports whether a destination is a collector's URL.
func isCollector(destination string) bool {
	return strings.HasPrefix(destination, "http://") || strings.HasPrefix(destination, "https://")
}

// newLogExporter makes a logExporter for the URL of a collector. One without a path has that of OTLP.
func newLogExporter(destination string) (*logExporter, error) {
	u, err := url.Parse(destination)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("--access-log: the URL of the collector cannot be used; write it as http://collector.example:4318, without user, query and fragment")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/logs"
	}
	return &logExporter{url: u.String(), backoff: 500 * time.Millisecond, client: http.Client{
		Timeout:       otlpTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Write exports whole lines, or returns why it cannot.
func (c *logExporter) Write(lines []byte) (int, error) {
	now := uint64(time.Now().UnixNano())
	scope := &logspb.ScopeLogs{Scope: &commonpb.InstrumentationScope{Name: "moongate/accesslog"}}
	for line := range bytes.Lines(lines) {
		scope.LogRecords = append(scope.LogRecords, logRecord(bytes.TrimSuffix(line, []byte("\n")), now))
	}
	// LogsData has the same encoding as an ExportLogsServiceRequest.
	body, err := proto.Marshal(&logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
		Resource:  &resourcepb.Resource{Attributes: []*commonpb.KeyValue{{Key: "service.name", Value: textValue("moongate")}}},
		ScopeLogs: []*logspb.ScopeLogs{scope},
	}}})
	if err != nil {
		return 0, err
	}
	wait := c.backoff
	for try := 1; ; try++ {
		refused, again, err := c.export(body)
		if err == nil {
			return before(lines, refused), refusedError(refused)
		}
		if !again || try == otlpTries {
			return 0, fmt.Errorf("access log: %w", err)
		}
		time.Sleep(wait)
		wait *= 2
	}
}

// before returns where the last n lines begin. Which lines a collector has refused it does not say; the number is what is counted.
func before(lines []byte, n uint64) int {
	end := len(lines)
	for ; n > 0 && end > 0; n-- {
		end = bytes.LastIndexByte(lines[:end-1], '\n') + 1
	}
	return end
}

func refusedError(n uint64) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("access log: the collector has refused %d lines of a batch", n)
}

// export makes one try. Of lines that have come to the collector it may have refused some; again is that another try may succeed.
func (c *logExporter) export(body []byte) (refused uint64, again bool, err error) {
	resp, err := c.client.Post(c.url, "application/x-protobuf", bytes.NewReader(body))
	if err != nil {
		return 0, true, err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, otlpResponseBytes)) // what is missing says nothing of refused lines
	switch resp.StatusCode {
	case http.StatusOK:
		return rejected(answer), false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return 0, again, fmt.Errorf("the collector has answered %s", resp.Status)
}

// rejected reads rejected_log_records of partial_success of an ExportLogsServiceResponse.
func rejected(response []byte) (n uint64) {
	partial := field(response, protowire.BytesType)
	if partial == nil {
		return 0
	}
	n, _ = protowire.ConsumeVarint(field(partial, protowire.VarintType))
	return n
}

// field returns the value of field 1 of a message: what a length stands before, else what begins there.
func field(b []byte, want protowire.Type) []byte {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if number == 1 && kind == want {
			if kind == protowire.BytesType {
				b, _ = protowire.ConsumeBytes(b)
			}
			return b
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil
		}
		b = b[n:]
	}
	return nil
}

// logRecord is a line as a record: the members of a JSON object as its body, a text as it is.
func logRecord(line []byte, now uint64) *logspb.LogRecord {
	r := &logspb.LogRecord{TimeUnixNano: now, ObservedTimeUnixNano: now, SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_INFO}
	members, ok := membersOf(line)
	if !ok {
		r.Body = textValue(string(line))
		return r
	}
	for _, m := range members {
		switch text := m.Value.GetStringValue(); m.Key {
		case "start_time":
			if t, err := time.Parse(time.RFC3339, text); err == nil {
				r.TimeUnixNano = uint64(t.UnixNano())
			}
		case "trace_id":
			if id, err := hex.DecodeString(text); err == nil && len(id) == 16 {
				r.TraceId = id
			}
		}
	}
	r.Body = &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: members}}}
	return r
}

// membersOf returns the members of a line that is one object of JSON without objects or lists in it. Others are texts, also where they begin like one: a client may have chosen
// what stands in them.
func membersOf(line []byte) (members []*commonpb.KeyValue, ok bool) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		key, err := d.Token()
		name, isName := key.(string)
		if err != nil || !isName {
			return nil, false
		}
		value, err := d.Token()
		if _, nested := value.(json.Delim); err != nil || nested {
			return nil, false
		}
		members = append(members, &commonpb.KeyValue{Key: name, Value: valueOf(value)})
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return nil, false
	}
	_, err := d.Token()
	return members, errors.Is(err, io.EOF)
}

func textValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: strings.ToValidUTF8(s, "\ufffd")}}
}

// valueOf is a value of JSON that is neither an object nor a list, which lines have none of; null is a value that is not set.
func valueOf(t json.Token) *commonpb.AnyValue {
	switch v := t.(type) {
	case string:
		return textValue(v)
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
		}
		f, _ := v.Float64()
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}
	}
	return &commonpb.AnyValue{}
}
