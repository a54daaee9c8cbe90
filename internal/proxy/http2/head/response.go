package head

import "errors"

var (
	errStatus       = errors.New(":status is missing or no number from 100 to 999")
	errSwitch       = errors.New("status 101, which HTTP/2 does not have")
	errInterimEnd   = errors.New("interim response that ends the stream")
	errLengthStatus = errors.New("Content-Length where there is no content by status")
)

// Status returns :status of a response's header section, 0 if it has not been decoded.
func (x *Section) Status() int { return int(x.status) }

// Size returns the size of the section, as SETTINGS_MAX_HEADER_LIST_SIZE counts it.
func (x *Section) Size() int { return x.size }

// pseudoStatus handles the pseudo-header field of a response (RFC 9113 section 8.3.2).
func (x *Section) pseudoStatus(name, value string) error {
	if x.regular || x.status != 0 || name != ":status" {
		return errPseudo
	}
	if len(value) != 3 || value[0] < '1' {
		return errStatus
	}
	status := int16(0)
	for i := range len(value) {
		if value[i] < '0' || value[i] > '9' {
			return errStatus
		}
		status = status*10 + int16(value[i]-'0')
	}
	x.status = status
	return nil
}

// responseField handles any other field of a response's header section.
func (x *Section) responseField(name, value string) error {
	switch name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "te":
		return errConnection
	case "content-length":
		return x.contentLength(value)
	case "http2-settings", "proxy-authorization", "proxy-authenticate", "proxy-authentication-info":
	default:
		if isLookalike(name) {
			return errLookalike
		}
		x.keepField(name, value)
	}
	return nil
}

// SettleResponse evaluates a complete header section of a response that is not too large. ended means that the stream
// ends with it, toHead that the request was HEAD. length is Content-Length, -1 if there is none; content is how many
// bytes must follow, -1 if unknown. The error is for the log.
func (x *Section) SettleResponse(ended, toHead bool) (length, content int64, err error) {
	switch status := x.status; {
	case x.Err != nil:
		return 0, 0, x.Err
	case status == 0:
		return 0, 0, errStatus
	case status == 101:
		return 0, 0, errSwitch
	case status < 200 && ended:
		return 0, 0, errInterimEnd
	case status < 200 || status == 204:
		if x.length > 0 {
			return 0, 0, errLengthStatus
		}
		return -1, 0, nil
	case status == 304 || toHead:
		return x.length, 0, nil
	}
	if ended && x.length > 0 {
		return 0, 0, errLengthWrong
	}
	if ended {
		return x.length, 0, nil
	}
	return x.length, x.length, nil
}
