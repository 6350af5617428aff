module github.com/dunlin-project/dunlin/bench/peers/room-go

go 1.26

require (
	github.com/gobwas/ws v1.5.0
	google.golang.org/protobuf v1.36.10
)

require github.com/gobwas/httphead v0.1.0 // indirect
