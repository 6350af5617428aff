module github.com/dunlin-project/dunlin/bench/peers/feed-go

go 1.26

require github.com/gorilla/websocket v1.5.3
