module github.com/moongate-dev/moongate/test/websocket

go 1.27.0

require (
	github.com/coder/websocket v1.8.15
	golang.org/x/net v0.50.0
)

require golang.org/x/text v0.34.0 // indirect
