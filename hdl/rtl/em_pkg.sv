// Operation codes and status codes of the exact-match table. The register `CMD` takes an
// operation code, the register `RESULT` shows a status code.
package em_pkg;
  typedef enum logic [2:0] {
    OP_START  = 3'd0,  // lookups and changes are allowed from here on
    OP_INSERT = 3'd1,  // add a key; duplicate if it is there
    OP_UPDATE = 3'd2,  // replace the value of a key in place
    OP_DELETE = 3'd3,  // remove a key; answers its value and its last counters
    OP_READ   = 3'd4,  // answers value and counters of a key
    OP_PUT    = 3'd5,  // update, or insert if the key is not there
    OP_ROW    = 3'd6,  // load a row of the hash; only before START
    OP_CLEAR  = 3'd7   // remove all; ends what START began
  } op_t;

  typedef enum logic [2:0] {
    ST_OK        = 3'd0,
    ST_NOT_FOUND = 3'd1,
    ST_DUPLICATE = 3'd2,
    ST_FULL      = 3'd3,
    ST_DENIED    = 3'd4  // not started (or, for ROW, started)
  } status_t;
endpackage
