module jobwire/conformance/drivers/go-workers2

go 1.20

require (
	github.com/digitalocean/go-workers2 v0.10.4
	github.com/go-redis/redis/v8 v8.4.4
)

require (
	github.com/bitly/go-simplejson v0.5.0 // indirect
	github.com/cespare/xxhash/v2 v2.1.1 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/google/uuid v1.1.4 // indirect
	go.opentelemetry.io/otel v0.15.0 // indirect
)
