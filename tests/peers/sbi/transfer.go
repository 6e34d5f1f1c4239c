package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"

	"github.com/free5gc/aper"
	"github.com/free5gc/nas"
	"github.com/free5gc/ngap/ngapType"
)

// tunnel is one end of the tunnel on N3.
type tunnel struct {
	Address string `json:"address"`
	TEID    uint32 `json:"teid"`
}

// transfer is what the SMF says to the UE and to the gNB.
type transfer struct {
	// Refused is the cause of a rejection (TS 24.501 9.11.4.2).
	Refused uint8 `json:"refused,omitempty"`
	// UE is the IPv4 address in a PDU Session Establishment Accept, and Identifier the interface identifier of
	// IPv6 there (TS 24.501 9.11.4.10).
	UE         string `json:"ue,omitempty"`
	Identifier string `json:"identifier,omitempty"`
	// UPF is where the gNB sends to, in a PDU Session Resource Setup Request Transfer.
	UPF  *tunnel `json:"upf,omitempty"`
	QFIs []int64 `json:"qfis,omitempty"`
}

// establishmentRequest is a PDU Session Establishment Request (TS 24.501 8.3.1): full rate for integrity protection, a
// type of session (9.11.4.11) and SSC mode 1.
func establishmentRequest(session int, kind byte) []byte {
	const mobility, transaction, request = 0x2e, 1, 0xc1
	return []byte{mobility, byte(session), transaction, request, 0xff, 0xff, 0x90 | kind, 0xa1}
}

// understand reads the N1 and N2 parts of a message of the SMF.
func understand(message parts) (transfer, error) {
	var found transfer
	if message.n1 != nil {
		if err := found.readNAS(message.n1); err != nil {
			return found, fmt.Errorf("N1: %w", err)
		}
	}
	if message.n2 != nil {
		if err := found.readNGAP(message.n2); err != nil {
			return found, fmt.Errorf("N2: %w", err)
		}
	}
	return found, nil
}

func (t *transfer) readNAS(octets []byte) error {
	message := nas.NewMessage()
	if err := message.GsmMessageDecode(&octets); err != nil {
		return err
	}
	switch message.GsmHeader.GetMessageType() {
	case nas.MsgTypePDUSessionEstablishmentAccept:
		if given := message.PDUSessionEstablishmentAccept.PDUAddress; given != nil {
			t.readAddress(given.GetPDUSessionTypeValue(), given.GetPDUAddressInformation())
		}
	case nas.MsgTypePDUSessionEstablishmentReject:
		t.Refused = message.PDUSessionEstablishmentReject.GetCauseValue()
	}
	return nil
}

// readAddress reads a PDU address of a type of session (9.11.4.11).
func (t *transfer) readAddress(kind uint8, octets [12]uint8) {
	const ipv4, ipv6, ipv4v6 = 1, 2, 3
	switch kind {
	case ipv4:
		t.UE = net.IP(octets[:4]).String()
	case ipv6:
		t.Identifier = hex.EncodeToString(octets[:8])
	case ipv4v6:
		t.Identifier = hex.EncodeToString(octets[:8])
		t.UE = net.IP(octets[8:12]).String()
	}
}

// readNGAP reads a PDU Session Resource Setup Request Transfer (TS 38.413 9.3.4.1); others carry none of this.
func (t *transfer) readNGAP(octets []byte) error {
	var request ngapType.PDUSessionResourceSetupRequestTransfer
	if err := aper.UnmarshalWithParams(octets, &request, "valueExt"); err != nil {
		return err
	}
	for _, element := range request.ProtocolIEs.List {
		if given := element.Value.ULNGUUPTNLInformation; given != nil && given.GTPTunnel != nil {
			t.UPF = &tunnel{
				Address: firstAddress(given.GTPTunnel.TransportLayerAddress.Value.Bytes),
				TEID:    binary.BigEndian.Uint32(given.GTPTunnel.GTPTEID.Value),
			}
		}
		if flows := element.Value.QosFlowSetupRequestList; flows != nil {
			for _, flow := range flows.List {
				t.QFIs = append(t.QFIs, flow.QosFlowIdentifier.Value)
			}
		}
	}
	return nil
}

// firstAddress is that of IPv4, where there are both (TS 38.414 5.3).
func firstAddress(octets []byte) string {
	const both = net.IPv4len + net.IPv6len
	if len(octets) == both {
		octets = octets[:net.IPv4len]
	}
	return net.IP(octets).String()
}

func (t tunnel) layer() ngapType.UPTransportLayerInformation {
	octets := net.ParseIP(t.Address)
	if four := octets.To4(); four != nil {
		octets = four
	}
	address := aper.BitString{Bytes: octets, BitLength: uint64(8 * len(octets))}
	return ngapType.UPTransportLayerInformation{
		Present: ngapType.UPTransportLayerInformationPresentGTPTunnel,
		GTPTunnel: &ngapType.GTPTunnel{
			TransportLayerAddress: ngapType.TransportLayerAddress{Value: address},
			GTPTEID:               ngapType.GTPTEID{Value: binary.BigEndian.AppendUint32(nil, t.TEID)},
		},
	}
}

// setupResponse is a PDU Session Resource Setup Response Transfer: the gNB's end of the tunnel (9.3.4.2).
func setupResponse(gnb tunnel, flows []int64) ([]byte, error) {
	response := ngapType.PDUSessionResourceSetupResponseTransfer{}
	response.DLQosFlowPerTNLInformation.UPTransportLayerInformation = gnb.layer()
	for _, flow := range flows {
		response.DLQosFlowPerTNLInformation.AssociatedQosFlowList.List = append(
			response.DLQosFlowPerTNLInformation.AssociatedQosFlowList.List,
			ngapType.AssociatedQosFlowItem{QosFlowIdentifier: ngapType.QosFlowIdentifier{Value: flow}},
		)
	}
	return aper.MarshalWithParams(response, "valueExt")
}

// modifyResponse is a PDU Session Resource Modify Response Transfer: a flow is there (9.3.4.4).
func modifyResponse(flow int64) ([]byte, error) {
	added := ngapType.QosFlowAddOrModifyResponseItem{QosFlowIdentifier: ngapType.QosFlowIdentifier{Value: flow}}
	list := ngapType.QosFlowAddOrModifyResponseList{List: []ngapType.QosFlowAddOrModifyResponseItem{added}}
	response := ngapType.PDUSessionResourceModifyResponseTransfer{QosFlowAddOrModifyResponseList: &list}
	return aper.MarshalWithParams(response, "valueExt")
}

// pathSwitch is a Path Switch Request Transfer: the new gNB's end of the tunnel (9.3.4.8).
func pathSwitch(gnb tunnel, flows []int64) ([]byte, error) {
	request := ngapType.PathSwitchRequestTransfer{DLNGUUPTNLInformation: gnb.layer()}
	for _, flow := range flows {
		request.QosFlowAcceptedList.List = append(
			request.QosFlowAcceptedList.List,
			ngapType.QosFlowAcceptedItem{QosFlowIdentifier: ngapType.QosFlowIdentifier{Value: flow}},
		)
	}
	return aper.MarshalWithParams(request, "valueExt")
}

// handoverRequired is a Handover Required Transfer: there is no path between the gNBs (9.3.4.14).
func handoverRequired() ([]byte, error) {
	return aper.MarshalWithParams(ngapType.HandoverRequiredTransfer{}, "valueExt")
}

// handoverAcknowledge is a Handover Request Acknowledge Transfer: the new gNB's ends of both tunnels (9.3.4.11).
func handoverAcknowledge(gnb, forwarding tunnel, flows []int64) ([]byte, error) {
	left := forwarding.layer()
	transfer := ngapType.HandoverRequestAcknowledgeTransfer{
		DLNGUUPTNLInformation: gnb.layer(), DLForwardingUPTNLInformation: &left,
	}
	for _, flow := range flows {
		transfer.QosFlowSetupResponseList.List = append(
			transfer.QosFlowSetupResponseList.List,
			ngapType.QosFlowItemWithDataForwarding{QosFlowIdentifier: ngapType.QosFlowIdentifier{Value: flow}},
		)
	}
	return aper.MarshalWithParams(transfer, "valueExt")
}

// forwardingTunnel reads a Handover Command Transfer: where the old gNB sends what it has left (9.3.4.10).
func forwardingTunnel(octets []byte) (*tunnel, error) {
	var command ngapType.HandoverCommandTransfer
	if err := aper.UnmarshalWithParams(octets, &command, "valueExt"); err != nil {
		return nil, err
	}
	if command.DLForwardingUPTNLInformation == nil || command.DLForwardingUPTNLInformation.GTPTunnel == nil {
		return nil, nil
	}
	given := command.DLForwardingUPTNLInformation.GTPTunnel
	return &tunnel{
		Address: net.IP(given.TransportLayerAddress.Value.Bytes).String(),
		TEID:    binary.BigEndian.Uint32(given.GTPTEID.Value),
	}, nil
}
