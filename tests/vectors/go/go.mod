module dunlin/tests/vectors

go 1.24

require (
	github.com/centrifugal/protocol v0.19.2
	github.com/shadowspore/fossil-delta v0.0.0-20241213113458-1d797d70cbe3
	google.golang.org/protobuf v1.36.11
)

require (
	github.com/josharian/intern v1.0.0 // indirect
	github.com/mailru/easyjson v0.7.7 // indirect
	github.com/planetscale/vtprotobuf v0.6.0 // indirect
	github.com/segmentio/asm v1.1.4 // indirect
	github.com/segmentio/encoding v0.5.3 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	golang.org/x/sys v0.21.0 // indirect
)
