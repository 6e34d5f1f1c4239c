// The verilated cores behind C functions: one call is one clock.

#include <cstdint>
#include <cstring>
#include <memory>

// The models that build.rs has made: their headers.
#define KAIDO_TWIN_HEADERS
#include "models.inc"
#undef KAIDO_TWIN_HEADERS

// As `Inputs` and `Outputs` in ffi.rs.
struct Inputs {
    std::uint8_t data[64];
    std::uint64_t keep;
    std::uint32_t awaddr, wdata, wstrb, araddr;
    std::uint8_t reset, valid, last, user, out_ready, host_ready;
    std::uint8_t awvalid, wvalid, bready, arvalid, rready;
};

struct Outputs {
    std::uint8_t out_data[64], host_data[64];
    std::uint64_t out_keep, host_keep;
    std::uint32_t rdata;
    std::uint8_t ready, out_valid, out_last, out_user, host_valid, host_last, host_user;
    std::uint8_t awready, wready, bresp, bvalid, arready, rresp, rvalid;
    std::uint8_t event_valid, event_code;
};

namespace {

struct Core {
    virtual ~Core() = default;
    // Of two ports; a core with one uses the first.
    virtual void clock(const Inputs *ins, Outputs *outs) = 0;
};

// Verilator names ports as the core does; the two forms differ in the names of their streams.
template <typename Stream, typename Keep>
void give(const Inputs &in, Stream &data, Keep &keep) {
    std::memcpy(&data, in.data, sizeof data);
    keep = static_cast<Keep>(in.keep);
}

template <typename Model>
void give_bus(Model &m, const Inputs &in) {
    m.s_axil_awaddr = in.awaddr;
    m.s_axil_awvalid = in.awvalid;
    m.s_axil_wdata = in.wdata;
    m.s_axil_wstrb = in.wstrb;
    m.s_axil_wvalid = in.wvalid;
    m.s_axil_bready = in.bready;
    m.s_axil_araddr = in.araddr;
    m.s_axil_arvalid = in.arvalid;
    m.s_axil_rready = in.rready;
    m.host_axis_tready = in.host_ready;
    m.rst = in.reset;
}

template <typename Model>
void take_bus(const Model &m, Outputs &out) {
    std::memcpy(out.host_data, &m.host_axis_tdata, sizeof m.host_axis_tdata);
    out.host_keep = m.host_axis_tkeep;
    out.host_valid = m.host_axis_tvalid;
    out.host_last = m.host_axis_tlast;
    out.host_user = m.host_axis_tuser;
    out.awready = m.s_axil_awready;
    out.wready = m.s_axil_wready;
    out.bresp = m.s_axil_bresp;
    out.bvalid = m.s_axil_bvalid;
    out.arready = m.s_axil_arready;
    out.rdata = m.s_axil_rdata;
    out.rresp = m.s_axil_rresp;
    out.rvalid = m.s_axil_rvalid;
}

// A core with one port, s_axis and m_axis.
template <typename Model>
struct Simulated : Core {
    VerilatedContext context;
    Model model{&context};

    ~Simulated() override { model.final(); }

    void clock(const Inputs *ins, Outputs *outs) override {
        const Inputs &in = ins[0];
        Outputs &out = outs[0];
        Model &m = model;
        give(in, m.s_axis_tdata, m.s_axis_tkeep);
        m.s_axis_tvalid = in.valid;
        m.s_axis_tlast = in.last;
        m.s_axis_tuser = in.user;
        m.m_axis_tready = in.out_ready;
        give_bus(m, in);
        m.clk = 0;
        m.eval();
        std::memcpy(out.out_data, &m.m_axis_tdata, sizeof m.m_axis_tdata);
        out.out_keep = m.m_axis_tkeep;
        out.ready = m.s_axis_tready;
        out.out_valid = m.m_axis_tvalid;
        out.out_last = m.m_axis_tlast;
        out.out_user = m.m_axis_tuser;
        take_bus(m, out);
        out.event_valid = m.event_valid;
        out.event_code = m.event_code;
        m.clk = 1;
        m.eval();
    }
};

// A core with two ports, n3 and n6.
template <typename Model>
struct SimulatedPorts : Core {
    VerilatedContext context;
    Model model{&context};

    ~SimulatedPorts() override { model.final(); }

    void clock(const Inputs *ins, Outputs *outs) override {
        Model &m = model;
        give(ins[0], m.s_n3_axis_tdata, m.s_n3_axis_tkeep);
        m.s_n3_axis_tvalid = ins[0].valid;
        m.s_n3_axis_tlast = ins[0].last;
        m.s_n3_axis_tuser = ins[0].user;
        m.m_n3_axis_tready = ins[0].out_ready;
        give(ins[1], m.s_n6_axis_tdata, m.s_n6_axis_tkeep);
        m.s_n6_axis_tvalid = ins[1].valid;
        m.s_n6_axis_tlast = ins[1].last;
        m.s_n6_axis_tuser = ins[1].user;
        m.m_n6_axis_tready = ins[1].out_ready;
        give_bus(m, ins[0]);
        m.clk = 0;
        m.eval();
        std::memcpy(outs[0].out_data, &m.m_n3_axis_tdata, sizeof m.m_n3_axis_tdata);
        outs[0].out_keep = m.m_n3_axis_tkeep;
        outs[0].ready = m.s_n3_axis_tready;
        outs[0].out_valid = m.m_n3_axis_tvalid;
        outs[0].out_last = m.m_n3_axis_tlast;
        outs[0].out_user = m.m_n3_axis_tuser;
        std::memcpy(outs[1].out_data, &m.m_n6_axis_tdata, sizeof m.m_n6_axis_tdata);
        outs[1].out_keep = m.m_n6_axis_tkeep;
        outs[1].ready = m.s_n6_axis_tready;
        outs[1].out_valid = m.m_n6_axis_tvalid;
        outs[1].out_last = m.m_n6_axis_tlast;
        outs[1].out_user = m.m_n6_axis_tuser;
        take_bus(m, outs[0]);
        m.clk = 1;
        m.eval();
    }
};

} // namespace

extern "C" {

// Null if there is no such core.
Core *kaido_twin_new(std::uint32_t which) {
    switch (which) {
#define KAIDO_TWIN_CASES
#include "models.inc"
#undef KAIDO_TWIN_CASES
    default: return nullptr;
    }
}

void kaido_twin_free(Core *core) { delete core; }

void kaido_twin_clock(Core *core, const Inputs *ins, Outputs *outs) { core->clock(ins, outs); }
}

// What verilated.cpp asks the program for.
double sc_time_stamp() { return 0; }
