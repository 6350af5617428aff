module github.com/dunlin-project/dunlin/bench/peers/room-go

go 1.26

require (
	github.com/gorilla/websocket v1.5.3
	google.golang.org/protobuf v1.36.10
)
