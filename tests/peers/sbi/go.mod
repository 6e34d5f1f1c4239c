module kaido.example/tests/peers/sbi

go 1.26.2

require (
	github.com/free5gc/aper v1.1.1
	github.com/free5gc/nas v1.2.3
	github.com/free5gc/ngap v1.1.3
)

require (
	github.com/sirupsen/logrus v1.9.3 // indirect
	github.com/tim-ywliu/nested-logrus-formatter v1.3.2 // indirect
	golang.org/x/sys v0.31.0 // indirect
)
