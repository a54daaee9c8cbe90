module github.com/moongate-dev/moongate/test

go 1.27.0

replace github.com/moongate-dev/moongate => ../

require golang.org/x/net v0.61.0
