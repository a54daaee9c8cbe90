package http1

import "strings"

// refusedCase is a request head, or the part of a head behind a valid request line
// and Host (fields), that must be refused with status and reason.
type refusedCase struct {
	name   string
	head   string
	fields string
	status int
	reason string
}

// input is the whole head.
func (c *refusedCase) input() string {
	if c.head != "" {
		return c.head
	}
	return "POST /a HTTP/1.1\r\nHost: example.com\r\n" + c.fields + "\r\n\r\n"
}

func target(t string) string { return "GET " + t + " HTTP/1.1\r\nHost: a\r\n\r\n" }

func host(h string) string { return "GET / HTTP/1.1\r\nHost: " + h + "\r\n\r\n" }

var refusedRequests = []refusedCase{
	// Content-Length beside Transfer-Encoding.
	{name: "CL.TE", fields: "Content-Length: 6\r\nTransfer-Encoding: chunked", status: 400, reason: "framing"},
	{name: "TE.CL", fields: "Transfer-Encoding: chunked\r\nContent-Length: 6", status: 400, reason: "framing"},
	{name: "CL.0 TE", fields: "Content-Length: 0\r\nTransfer-Encoding: chunked", status: 400, reason: "framing"},
	{name: "TE.CL far apart", fields: "transfer-encoding: Chunked\r\nA: b\r\nCONTENT-LENGTH: 6", status: 400, reason: "framing"},
	{name: "CL.TE obfuscated", fields: "Content-Length: 6\r\nTransfer-Encoding: xchunked", status: 400, reason: "transfer_encoding"},

	// Content-Length.
	{name: "CL twice equal", fields: "Content-Length: 5\r\nContent-Length: 5", status: 400, reason: "content_length"},
	{name: "CL twice different", fields: "Content-Length: 5\r\nContent-Length: 6", status: 400, reason: "content_length"},
	{name: "CL twice other case", fields: "Content-Length: 0\r\nX: y\r\ncontent-length: 0", status: 400, reason: "content_length"},
	{name: "CL list equal", fields: "Content-Length: 5, 5", status: 400, reason: "content_length"},
	{name: "CL list", fields: "Content-Length: 5,6", status: 400, reason: "content_length"},
	{name: "CL plus", fields: "Content-Length: +5", status: 400, reason: "content_length"},
	{name: "CL minus", fields: "Content-Length: -5", status: 400, reason: "content_length"},
	{name: "CL minus zero", fields: "Content-Length: -0", status: 400, reason: "content_length"},
	{name: "CL empty", fields: "Content-Length:", status: 400, reason: "content_length"},
	{name: "CL blank", fields: "Content-Length: \t ", status: 400, reason: "content_length"},
	{name: "CL hex", fields: "Content-Length: 0x5", status: 400, reason: "content_length"},
	{name: "CL hex digits", fields: "Content-Length: a", status: 400, reason: "content_length"},
	{name: "CL float", fields: "Content-Length: 5.0", status: 400, reason: "content_length"},
	{name: "CL exponent", fields: "Content-Length: 1e1", status: 400, reason: "content_length"},
	{name: "CL inner space", fields: "Content-Length: 1 2", status: 400, reason: "content_length"},
	{name: "CL underscore", fields: "Content-Length: 1_0", status: 400, reason: "content_length"},
	{name: "CL 2^63", fields: "Content-Length: 9223372036854775808", status: 400, reason: "content_length"},
	{name: "CL 2^64+5", fields: "Content-Length: 18446744073709551621", status: 400, reason: "content_length"},
	{name: "CL 40 digits", fields: "Content-Length: " + strings.Repeat("0", 39) + "5", status: 400, reason: "content_length"},
	{name: "CL quoted", fields: "Content-Length: \"5\"", status: 400, reason: "content_length"},
	{name: "CL full-width digit", fields: "Content-Length: \xef\xbc\x95", status: 400, reason: "content_length"},
	{name: "CL semicolon", fields: "Content-Length: 5;", status: 400, reason: "content_length"},
	{name: "CL trailing comma", fields: "Content-Length: 5,", status: 400, reason: "content_length"},
	{name: "CL lookalike", fields: "Content_Length: 5", status: 400, reason: "framing"},
	{name: "CL lookalike with a dot", fields: "content.Length: 5", status: 400, reason: "framing"},
	{name: "CL space before colon", fields: "Content-Length : 5", status: 400, reason: "field_line"},
	{name: "CL NUL", fields: "Content-Length: 5\x00", status: 400, reason: "field_line"},
	{name: "CL vertical tab", fields: "Content-Length: \x0b5", status: 400, reason: "field_line"},

	// Transfer-Encoding.
	{name: "TE.TE twice", fields: "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", status: 400, reason: "transfer_encoding"},
	{name: "TE.TE identity", fields: "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", status: 400, reason: "transfer_encoding"},
	{name: "TE.TE cow", fields: "Transfer-Encoding: chunked\r\nTransfer-encoding: cow", status: 400, reason: "transfer_encoding"},
	{name: "TE identity then chunked", fields: "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", status: 400, reason: "transfer_encoding"},
	{name: "TE chunked, chunked", fields: "Transfer-Encoding: chunked, chunked", status: 400, reason: "transfer_encoding"},
	{name: "TE chunked, identity", fields: "Transfer-Encoding: chunked, identity", status: 400, reason: "transfer_encoding"},
	{name: "TE chunked, gzip", fields: "Transfer-Encoding: chunked, gzip", status: 400, reason: "transfer_encoding"},
	{name: "TE gzip, chunked", fields: "Transfer-Encoding: gzip, chunked", status: 501, reason: "transfer_encoding"},
	{name: "TE identity, chunked", fields: "Transfer-Encoding: identity, chunked", status: 501, reason: "transfer_encoding"},
	{name: "TE gzip, br, chunked", fields: "Transfer-Encoding: gzip,br ,\tCHUNKED", status: 501, reason: "transfer_encoding"},
	{name: "TE gzip", fields: "Transfer-Encoding: gzip", status: 400, reason: "transfer_encoding"},
	{name: "TE identity", fields: "Transfer-Encoding: identity", status: 400, reason: "transfer_encoding"},
	{name: "TE empty", fields: "Transfer-Encoding:", status: 400, reason: "transfer_encoding"},
	{name: "TE xchunked", fields: "Transfer-Encoding: xchunked", status: 400, reason: "transfer_encoding"},
	{name: "TE chunkedx", fields: "Transfer-Encoding: chunkedx", status: 400, reason: "transfer_encoding"},
	{name: "TE chunked comma", fields: "Transfer-Encoding: chunked,", status: 400, reason: "transfer_encoding"},
	{name: "TE comma chunked", fields: "Transfer-Encoding: ,chunked", status: 400, reason: "transfer_encoding"},
	{name: "TE quoted", fields: "Transfer-Encoding: \"chunked\"", status: 400, reason: "transfer_encoding"},
	{name: "TE single quotes", fields: "Transfer-Encoding: 'chunked'", status: 400, reason: "transfer_encoding"},
	{name: "TE parameter", fields: "Transfer-Encoding: chunked;q=1", status: 400, reason: "transfer_encoding"},
	{name: "TE inner space", fields: "Transfer-Encoding: chunk ed", status: 400, reason: "transfer_encoding"},
	{name: "TE dotted I", fields: "Transfer-Encoding: chun\xc4\xb1ked", status: 400, reason: "transfer_encoding"},
	{name: "TE Kelvin sign", fields: "Transfer-Encoding: chun\xe2\x84\xaaed", status: 400, reason: "transfer_encoding"},
	{name: "TE no-break space", fields: "Transfer-Encoding: \xa0chunked", status: 400, reason: "transfer_encoding"},
	{name: "TE 0xff", fields: "Transfer-Encoding: \xffchunked", status: 400, reason: "transfer_encoding"},
	{name: "TE vertical tab before", fields: "Transfer-Encoding: \x0bchunked", status: 400, reason: "field_line"},
	{name: "TE vertical tab after", fields: "Transfer-Encoding: chunked\x0b", status: 400, reason: "field_line"},
	{name: "TE form feed", fields: "Transfer-Encoding:\x0cchunked", status: 400, reason: "field_line"},
	{name: "TE NUL", fields: "Transfer-Encoding: chunked\x00", status: 400, reason: "field_line"},
	{name: "TE DEL", fields: "Transfer-Encoding: chunked\x7f", status: 400, reason: "field_line"},
	{name: "TE space before colon", fields: "Transfer-Encoding : chunked", status: 400, reason: "field_line"},
	{name: "TE tab before colon", fields: "Transfer-Encoding\t: chunked", status: 400, reason: "field_line"},
	{name: "TE leading space", fields: "A: b\r\n Transfer-Encoding: chunked", status: 400, reason: "field_line"},
	{name: "TE folded", fields: "Transfer-Encoding:\r\n chunked", status: 400, reason: "transfer_encoding"},
	{name: "TE folded later", fields: "X: y\r\n\tTransfer-Encoding: chunked", status: 400, reason: "field_line"},
	{name: "TE behind bare LF", fields: "X: y\nTransfer-Encoding: chunked", status: 400, reason: "field_line"},
	{name: "TE behind bare CR", fields: "X: y\rTransfer-Encoding: chunked", status: 400, reason: "field_line"},
	{name: "TE behind CR CR LF", fields: "X: y\r\r\nTransfer-Encoding: chunked", status: 400, reason: "field_line"},
	{name: "TE name with NUL", fields: "Transfer-Encoding\x00: chunked", status: 400, reason: "field_line"},
	{name: "TE no colon", fields: "Transfer-Encoding chunked", status: 400, reason: "field_line"},
	{name: "TE lookalike", fields: "Transfer_Encoding: chunked", status: 400, reason: "framing"},
	{name: "TE lookalike with an asterisk", fields: "TRANSFER*ENCODING: chunked", status: 400, reason: "framing"},
	{name: "TE in HTTP/1.0", head: "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", status: 400, reason: "transfer_encoding"},

	// Field lines.
	{name: "bare LF ends line", head: "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", status: 400, reason: "field_line"},
	{name: "bare LF ends head", head: "GET / HTTP/1.1\r\nHost: a\r\n\n", status: 400, reason: "field_line"},
	{name: "bare CR ends head", head: "GET / HTTP/1.1\r\nHost: a\r\n\rX", status: 400, reason: "field_line"},
	{name: "bare CR in value", fields: "X: a\rb", status: 400, reason: "field_line"},
	{name: "NUL in value", fields: "X: a\x00b", status: 400, reason: "field_line"},
	{name: "BEL in long value", fields: "X: 0123456789abcdef\x07", status: 400, reason: "field_line"},
	{name: "ESC in value", fields: "X: \x1b[0m", status: 400, reason: "field_line"},
	{name: "DEL in value", fields: "X: 01234567\x7f89abcdef", status: 400, reason: "field_line"},
	{name: "obs-fold space", fields: "X: a\r\n b", status: 400, reason: "field_line"},
	{name: "obs-fold tab", fields: "X: a\r\n\tb", status: 400, reason: "field_line"},
	{name: "obs-fold empty", fields: "X: a\r\n ", status: 400, reason: "field_line"},
	{name: "space before first line", head: "GET / HTTP/1.1\r\n Host: a\r\n\r\n", status: 400, reason: "field_line"},
	{name: "tab before first line", head: "GET / HTTP/1.1\r\n\tX: y\r\nHost: a\r\n\r\n", status: 400, reason: "field_line"},
	{name: "space before colon", fields: "X : a", status: 400, reason: "field_line"},
	{name: "space in name", fields: "X Y: a", status: 400, reason: "field_line"},
	{name: "empty name", fields: ": a", status: 400, reason: "field_line"},
	{name: "no colon", fields: "X", status: 400, reason: "field_line"},
	{name: "non-ASCII name", fields: "X\xc3\xa9: a", status: 400, reason: "field_line"},
	{name: "parenthesis in name", fields: "X(): a", status: 400, reason: "field_line"},
	{name: "quote in name", fields: "\"X\": a", status: 400, reason: "field_line"},
	{name: "slash in name", fields: "X/Y: a", status: 400, reason: "field_line"},
	{name: "BOM before name", fields: "\xef\xbb\xbfX: a", status: 400, reason: "field_line"},
	{name: "second request line", fields: "GET / HTTP/1.1", status: 400, reason: "field_line"},

	// Host.
	{name: "no Host", head: "GET / HTTP/1.1\r\nX: y\r\n\r\n", status: 400, reason: "host"},
	{name: "no Host, absolute-form", head: "GET http://a/ HTTP/1.1\r\n\r\n", status: 400, reason: "host"},
	{name: "Host twice", fields: "Host: example.com", status: 400, reason: "host"},
	{name: "Host twice different", fields: "host: evil.example", status: 400, reason: "host"},
	{name: "Host empty", head: host(""), status: 400, reason: "host"},
	{name: "Host list", head: host("a, b"), status: 400, reason: "host"},
	{name: "Host comma", head: host("a,b"), status: 400, reason: "host"},
	{name: "Host space", head: host("a b"), status: 400, reason: "host"},
	{name: "Host userinfo", head: host("user@a"), status: 400, reason: "host"},
	{name: "Host userinfo port", head: host("a:80@b"), status: 400, reason: "host"},
	{name: "Host slash", head: host("a/b"), status: 400, reason: "host"},
	{name: "Host backslash", head: host("a\\b"), status: 400, reason: "host"},
	{name: "Host query", head: host("a?b"), status: 400, reason: "host"},
	{name: "Host fragment", head: host("a#b"), status: 400, reason: "host"},
	{name: "Host URL", head: host("http://a"), status: 400, reason: "host"},
	{name: "Host escape", head: host("%61"), status: 400, reason: "host"},
	{name: "Host wildcard", head: host("*.example.com"), status: 400, reason: "host"},
	{name: "Host non-ASCII", head: host("\xc3\xa9.example"), status: 400, reason: "host"},
	{name: "Host only port", head: host(":80"), status: 400, reason: "host"},
	{name: "Host dot", head: host("."), status: 400, reason: "host"},
	{name: "Host empty label", head: host("a..b"), status: 400, reason: "host"},
	{name: "Host leading dot", head: host(".a"), status: 400, reason: "host"},
	{name: "Host two trailing dots", head: host("a.."), status: 400, reason: "host"},
	{name: "Host port letters", head: host("a:b"), status: 400, reason: "host"},
	{name: "Host port sign", head: host("a:+80"), status: 400, reason: "host"},
	{name: "Host port too big", head: host("a:65536"), status: 400, reason: "host"},
	{name: "Host port too long", head: host("a:000080"), status: 400, reason: "host"},
	{name: "Host two ports", head: host("a:80:80"), status: 400, reason: "host"},
	{name: "Host bare IPv6", head: host("::1"), status: 400, reason: "host"},
	{name: "Host IPv6 unclosed", head: host("[::1"), status: 400, reason: "host"},
	{name: "Host IPv6 empty", head: host("[]"), status: 400, reason: "host"},
	{name: "Host IPv6 colon", head: host("[:]"), status: 400, reason: "host"},
	{name: "Host IPv6 two gaps", head: host("[1::2::3]"), status: 400, reason: "host"},
	{name: "Host IPv6 three colons", head: host("[1:::2]"), status: 400, reason: "host"},
	{name: "Host IPv6 short", head: host("[1:2:3:4:5:6:7]"), status: 400, reason: "host"},
	{name: "Host IPv6 long", head: host("[1:2:3:4:5:6:7:8:9]"), status: 400, reason: "host"},
	{name: "Host IPv6 full with gap", head: host("[1:2:3:4:5:6:7:8::]"), status: 400, reason: "host"},
	{name: "Host IPv6 wide group", head: host("[12345::]"), status: 400, reason: "host"},
	{name: "Host IPv6 zone", head: host("[fe80::1%25eth0]"), status: 400, reason: "host"},
	{name: "Host IPv6 bad IPv4", head: host("[::1.2.3.256]"), status: 400, reason: "host"},
	{name: "Host IPv6 short IPv4", head: host("[::1.2.3]"), status: 400, reason: "host"},
	{name: "Host IPv6 IPv4 zeros", head: host("[::01.2.3.4]"), status: 400, reason: "host"},
	{name: "Host IPv6 tail", head: host("[::1]x"), status: 400, reason: "host"},
	{name: "Host IPvFuture", head: host("[v1.x]"), status: 400, reason: "host"},
	{name: "Host too long", head: host(strings.Repeat("a", 256)), status: 400, reason: "host"},
	{name: "Host empty in 1.0", head: "GET / HTTP/1.0\r\nHost:\r\n\r\n", status: 400, reason: "host"},
	{name: "bad Host beside authority", head: "GET http://a/ HTTP/1.1\r\nHost: b c\r\n\r\n", status: 400, reason: "host"},
}
