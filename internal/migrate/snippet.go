package migrate

import (
	"slices"
	"strings"
)

// snippetContext is the block of a snippet in nginx's configuration.
type snippetContext int

const (
	httpSnippet   snippetContext = iota // also in servers and locations
	streamSnippet                       // for TCP and UDP connections
	mainSnippet
)

// harmlessDirectives neither reject requests or connections nor redirect them. All others may do so: a list of these would have no
// end, because modules add directives.
var harmlessDirectives = map[snippetContext][]string{
	httpSnippet: strings.Fields(`absolute_redirect access_log add_header add_trailer aio brotli brotli_comp_level brotli_min_length brotli_static brotli_types charset charset_types chunked_transfer_encoding
		client_body_buffer_size client_body_in_file_only client_body_temp_path client_body_timeout client_header_buffer_size client_header_timeout default_type directio error_log etag expires geo gzip gzip_buffers
		gzip_comp_level gzip_disable gzip_http_version gzip_min_length gzip_proxied gzip_static gzip_types gzip_vary http2_chunk_size http2_max_concurrent_streams if_modified_since keepalive_disable keepalive_requests
		keepalive_time keepalive_timeout large_client_header_buffers lingering_close lingering_time lingering_timeout log_format log_not_found log_subrequest lua_shared_dict map map_hash_bucket_size map_hash_max_size max_ranges
		more_clear_headers more_clear_input_headers more_set_headers more_set_input_headers open_file_cache open_file_cache_errors open_file_cache_min_uses open_file_cache_valid open_log_file_cache output_buffers
		port_in_redirect postpone_output proxy_buffer_size proxy_buffering proxy_buffers proxy_busy_buffers_size proxy_connect_timeout proxy_cookie_domain proxy_cookie_flags proxy_cookie_path proxy_headers_hash_bucket_size
		proxy_headers_hash_max_size proxy_hide_header proxy_http_version proxy_ignore_client_abort proxy_ignore_headers proxy_max_temp_file_size proxy_next_upstream proxy_next_upstream_timeout proxy_next_upstream_tries
		proxy_pass_header proxy_read_timeout proxy_redirect proxy_request_buffering proxy_send_timeout proxy_set_header proxy_socket_keepalive proxy_temp_file_write_size proxy_temp_path reset_timedout_connection resolver
		resolver_timeout send_lowat send_timeout sendfile server_name_in_redirect server_tokens source_charset split_clients ssl_buffer_size ssl_ciphers ssl_dhparam ssl_early_data ssl_ecdh_curve ssl_prefer_server_ciphers
		ssl_protocols ssl_session_cache ssl_session_ticket_key ssl_session_tickets ssl_session_timeout ssl_stapling sub_filter sub_filter_last_modified sub_filter_once sub_filter_types tcp_nodelay tcp_nopush types
		types_hash_bucket_size types_hash_max_size variables_hash_bucket_size variables_hash_max_size`),
	streamSnippet: strings.Fields(`access_log error_log geo log_format map map_hash_bucket_size map_hash_max_size open_log_file_cache preread_buffer_size preread_timeout proxy_buffer_size proxy_connect_timeout
		proxy_next_upstream proxy_next_upstream_timeout proxy_next_upstream_tries proxy_socket_keepalive proxy_timeout resolver resolver_timeout split_clients tcp_nodelay variables_hash_bucket_size variables_hash_max_size`),
	mainSnippet: strings.Fields(`debug_points env error_log pcre_jit thread_pool timer_resolution worker_cpu_affinity worker_priority worker_processes worker_rlimit_core worker_rlimit_nofile worker_shutdown_timeout`),
}

// valueBlocks are the directives whose blocks contain values, not directives.
var valueBlocks = strings.Fields("map geo split_clients types")

// mayRefuse reports whether a snippet may reject or redirect requests or connections, or let them bypass what does. It returns false
// only if each of its directives is known to be harmless.
func mayRefuse(snippet string, context snippetContext) bool {
	block := false
	var first string // token of a directive
	open := false    // a directive has begun
	for rest := snippet; ; {
		token, quoted, after := nextToken(rest)
		rest = after
		switch {
		case token == "" && !quoted:
			return block || open
		case !quoted && token == "}":
			if !block || open {
				return true
			}
			block = false
		case !quoted && token == "{":
			if block || !open || !slices.Contains(valueBlocks, first) || !slices.Contains(harmlessDirectives[context], first) {
				return true
			}
			block, open = true, false
		case !quoted && token == ";":
			if !open || !block && (!slices.Contains(harmlessDirectives[context], first) || slices.Contains(valueBlocks, first)) {
				return true
			}
			open = false
		case !open:
			first, open = token, true
		}
	}
}

// nextToken returns the first token of nginx's configuration, whether it was in quotes, and the rest. "" without quotes means that
// there is none.
func nextToken(text string) (token string, quoted bool, rest string) {
	for {
		text = strings.TrimLeft(text, " \t\r\n")
		if !strings.HasPrefix(text, "#") {
			break
		}
		_, text, _ = strings.Cut(text, "\n")
	}
	if text == "" {
		return "", false, ""
	}
	if strings.ContainsRune(";{}", rune(text[0])) {
		return text[:1], false, text[1:]
	}
	quote := byte(0)
	if text[0] == '"' || text[0] == '\'' {
		quote = text[0]
		text = text[1:]
	}
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '\\':
			i++
		case quote != 0:
			if b == quote {
				return text[:i], true, text[i+1:]
			}
		case b == '$' && i+1 < len(text) && text[i+1] == '{':
			i++
		case strings.IndexByte(" \t\r\n;{", b) >= 0:
			return text[:i], false, text[i:]
		}
	}
	return text, quote != 0, ""
}
