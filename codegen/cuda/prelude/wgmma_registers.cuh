// The register lists of wgmma for every accumulator width N (multiples of 8 up to 256). A list for N is the list for
// N-8 and four more registers; the numbers in INGOT_WGMMA_N are the operands that follow the accumulators. Included by
// wgmma.cuh.
#define WG_R8 "%0, %1, %2, %3"
#define WG_R16 WG_R8 ", %4, %5, %6, %7"
#define WG_R24 WG_R16 ", %8, %9, %10, %11"
#define WG_R32 WG_R24 ", %12, %13, %14, %15"
#define WG_R40 WG_R32 ", %16, %17, %18, %19"
#define WG_R48 WG_R40 ", %20, %21, %22, %23"
#define WG_R56 WG_R48 ", %24, %25, %26, %27"
#define WG_R64 WG_R56 ", %28, %29, %30, %31"
#define WG_R72 WG_R64 ", %32, %33, %34, %35"
#define WG_R80 WG_R72 ", %36, %37, %38, %39"
#define WG_R88 WG_R80 ", %40, %41, %42, %43"
#define WG_R96 WG_R88 ", %44, %45, %46, %47"
#define WG_R104 WG_R96 ", %48, %49, %50, %51"
#define WG_R112 WG_R104 ", %52, %53, %54, %55"
#define WG_R120 WG_R112 ", %56, %57, %58, %59"
#define WG_R128 WG_R120 ", %60, %61, %62, %63"
#define WG_R136 WG_R128 ", %64, %65, %66, %67"
#define WG_R144 WG_R136 ", %68, %69, %70, %71"
#define WG_R152 WG_R144 ", %72, %73, %74, %75"
#define WG_R160 WG_R152 ", %76, %77, %78, %79"
#define WG_R168 WG_R160 ", %80, %81, %82, %83"
#define WG_R176 WG_R168 ", %84, %85, %86, %87"
#define WG_R184 WG_R176 ", %88, %89, %90, %91"
#define WG_R192 WG_R184 ", %92, %93, %94, %95"
#define WG_R200 WG_R192 ", %96, %97, %98, %99"
#define WG_R208 WG_R200 ", %100, %101, %102, %103"
#define WG_R216 WG_R208 ", %104, %105, %106, %107"
#define WG_R224 WG_R216 ", %108, %109, %110, %111"
#define WG_R232 WG_R224 ", %112, %113, %114, %115"
#define WG_R240 WG_R232 ", %116, %117, %118, %119"
#define WG_R248 WG_R240 ", %120, %121, %122, %123"
#define WG_R256 WG_R248 ", %124, %125, %126, %127"
#define WG_O8(c, d) c(d[0]), c(d[1]), c(d[2]), c(d[3])
#define WG_O16(c, d) WG_O8(c, d), c(d[4]), c(d[5]), c(d[6]), c(d[7])
#define WG_O24(c, d) WG_O16(c, d), c(d[8]), c(d[9]), c(d[10]), c(d[11])
#define WG_O32(c, d) WG_O24(c, d), c(d[12]), c(d[13]), c(d[14]), c(d[15])
#define WG_O40(c, d) WG_O32(c, d), c(d[16]), c(d[17]), c(d[18]), c(d[19])
#define WG_O48(c, d) WG_O40(c, d), c(d[20]), c(d[21]), c(d[22]), c(d[23])
#define WG_O56(c, d) WG_O48(c, d), c(d[24]), c(d[25]), c(d[26]), c(d[27])
#define WG_O64(c, d) WG_O56(c, d), c(d[28]), c(d[29]), c(d[30]), c(d[31])
#define WG_O72(c, d) WG_O64(c, d), c(d[32]), c(d[33]), c(d[34]), c(d[35])
#define WG_O80(c, d) WG_O72(c, d), c(d[36]), c(d[37]), c(d[38]), c(d[39])
#define WG_O88(c, d) WG_O80(c, d), c(d[40]), c(d[41]), c(d[42]), c(d[43])
#define WG_O96(c, d) WG_O88(c, d), c(d[44]), c(d[45]), c(d[46]), c(d[47])
#define WG_O104(c, d) WG_O96(c, d), c(d[48]), c(d[49]), c(d[50]), c(d[51])
#define WG_O112(c, d) WG_O104(c, d), c(d[52]), c(d[53]), c(d[54]), c(d[55])
#define WG_O120(c, d) WG_O112(c, d), c(d[56]), c(d[57]), c(d[58]), c(d[59])
#define WG_O128(c, d) WG_O120(c, d), c(d[60]), c(d[61]), c(d[62]), c(d[63])
#define WG_O136(c, d) WG_O128(c, d), c(d[64]), c(d[65]), c(d[66]), c(d[67])
#define WG_O144(c, d) WG_O136(c, d), c(d[68]), c(d[69]), c(d[70]), c(d[71])
#define WG_O152(c, d) WG_O144(c, d), c(d[72]), c(d[73]), c(d[74]), c(d[75])
#define WG_O160(c, d) WG_O152(c, d), c(d[76]), c(d[77]), c(d[78]), c(d[79])
#define WG_O168(c, d) WG_O160(c, d), c(d[80]), c(d[81]), c(d[82]), c(d[83])
#define WG_O176(c, d) WG_O168(c, d), c(d[84]), c(d[85]), c(d[86]), c(d[87])
#define WG_O184(c, d) WG_O176(c, d), c(d[88]), c(d[89]), c(d[90]), c(d[91])
#define WG_O192(c, d) WG_O184(c, d), c(d[92]), c(d[93]), c(d[94]), c(d[95])
#define WG_O200(c, d) WG_O192(c, d), c(d[96]), c(d[97]), c(d[98]), c(d[99])
#define WG_O208(c, d) WG_O200(c, d), c(d[100]), c(d[101]), c(d[102]), c(d[103])
#define WG_O216(c, d) WG_O208(c, d), c(d[104]), c(d[105]), c(d[106]), c(d[107])
#define WG_O224(c, d) WG_O216(c, d), c(d[108]), c(d[109]), c(d[110]), c(d[111])
#define WG_O232(c, d) WG_O224(c, d), c(d[112]), c(d[113]), c(d[114]), c(d[115])
#define WG_O240(c, d) WG_O232(c, d), c(d[116]), c(d[117]), c(d[118]), c(d[119])
#define WG_O248(c, d) WG_O240(c, d), c(d[120]), c(d[121]), c(d[122]), c(d[123])
#define WG_O256(c, d) WG_O248(c, d), c(d[124]), c(d[125]), c(d[126]), c(d[127])
#define INGOT_WGMMA_8 WG_DEF(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
#define INGOT_WGMMA_16 WG_DEF(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
#define INGOT_WGMMA_24 WG_DEF(24, 12, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
#define INGOT_WGMMA_32 WG_DEF(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
#define INGOT_WGMMA_40 WG_DEF(40, 20, "%20", "%21", "%22", "%23", "%24", "%25", "%26")
#define INGOT_WGMMA_48 WG_DEF(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
#define INGOT_WGMMA_56 WG_DEF(56, 28, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
#define INGOT_WGMMA_64 WG_DEF(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
#define INGOT_WGMMA_72 WG_DEF(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
#define INGOT_WGMMA_80 WG_DEF(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
#define INGOT_WGMMA_88 WG_DEF(88, 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
#define INGOT_WGMMA_96 WG_DEF(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
#define INGOT_WGMMA_104 WG_DEF(104, 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
#define INGOT_WGMMA_112 WG_DEF(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
#define INGOT_WGMMA_120 WG_DEF(120, 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
#define INGOT_WGMMA_128 WG_DEF(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
#define INGOT_WGMMA_136 WG_DEF(136, 68, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
#define INGOT_WGMMA_144 WG_DEF(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
#define INGOT_WGMMA_152 WG_DEF(152, 76, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
#define INGOT_WGMMA_160 WG_DEF(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
#define INGOT_WGMMA_168 WG_DEF(168, 84, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
#define INGOT_WGMMA_176 WG_DEF(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
#define INGOT_WGMMA_184 WG_DEF(184, 92, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
#define INGOT_WGMMA_192 WG_DEF(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
#define INGOT_WGMMA_200 WG_DEF(200, 100, "%100", "%101", "%102", "%103", "%104", "%105", "%106")
#define INGOT_WGMMA_208 WG_DEF(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
#define INGOT_WGMMA_216 WG_DEF(216, 108, "%108", "%109", "%110", "%111", "%112", "%113", "%114")
#define INGOT_WGMMA_224 WG_DEF(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
#define INGOT_WGMMA_232 WG_DEF(232, 116, "%116", "%117", "%118", "%119", "%120", "%121", "%122")
#define INGOT_WGMMA_240 WG_DEF(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
#define INGOT_WGMMA_248 WG_DEF(248, 124, "%124", "%125", "%126", "%127", "%128", "%129", "%130")
#define INGOT_WGMMA_256 WG_DEF(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
