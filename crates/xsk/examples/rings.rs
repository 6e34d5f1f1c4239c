//! Binds one queue of an interface and shows what the kernel gave:
//! `cargo run -p kaido-xsk --example rings -- eth0 [queue] [auto|copy|zero-copy]`

use std::error::Error;
use std::ffi::CString;
use std::ptr::NonNull;

use kaido_xsk::{BindMode, Socket, Umem, UmemConfig};

const UMEM_LEN: usize = 64 * 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("usage: rings <interface> [queue] [auto|copy|zero-copy]")?;
    let queue = args.next().map_or(Ok(0), |queue| queue.parse())?;
    let mode = match args.next().as_deref() {
        None | Some("auto") => BindMode::Auto,
        Some("copy") => BindMode::Copy,
        Some("zero-copy") => BindMode::ZeroCopy,
        Some(other) => return Err(format!("no such mode: {other}").into()),
    };
    let c_name = CString::new(name.as_str())?;
    // SAFETY: a C string.
    let ifindex = unsafe { libc::if_nametoindex(c_name.as_ptr()) };

    // SAFETY: a new mapping at an address of the kernel's choice.
    let area = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            UMEM_LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if area == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    let area = NonNull::new(area.cast()).ok_or("mapped at zero")?;
    // SAFETY: mapped just now and never unmapped.
    let umem = unsafe { Umem::register(area, UMEM_LEN, UmemConfig::default())? };
    let (socket, mut rings) = Socket::builder(ifindex, queue).mode(mode).bind(&umem)?;

    println!("{name} queue {queue}: {:?}, UMEM of {} chunks", socket.mode(), umem.chunks());
    println!("fill        {:5} slots, {:5} free", rings.fill.capacity(), rings.fill.free());
    println!(
        "completion  {:5} slots, {:5} to reap",
        rings.completion.capacity(),
        rings.completion.available()
    );
    println!("rx          {:5} slots, {:5} to receive", rings.rx.capacity(), rings.rx.available());
    println!("tx          {:5} slots, {:5} free", rings.tx.capacity(), rings.tx.free());
    println!("wake-up     fill {}, tx {}", rings.fill.needs_wakeup(), rings.tx.needs_wakeup());
    println!("{:?}", socket.statistics()?);
    Ok(())
}
